// The two programs that are compared, driven alike.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace winnow::model {
class Model;
}

namespace winnow::bench {

struct Setup {
  int n_threads = 2;
  int n_positions = 0;  // most of a sequence
  int n_sequences = 8;  // of decode_together
  int n_together = 0;   // most positions of each of those
};

// What a run reads or computes at the least.
struct Work {
  double bytes = 0;
  double operations = 0;
};

// Batches of 512 prompt tokens, an f16 cache, and the logits of the last token of every call.
class Program {
 public:
  virtual ~Program() = default;

  virtual const std::string& name() const = 0;
  // Back to the first n_positions of those fed.
  virtual void rewind(int n_positions) = 0;
  virtual void prefill(std::span<const int32_t> tokens) = 0;
  virtual void decode(int n_tokens) = 0;
  // Starts n_sequences anew with the same prompt.
  virtual void start_together(std::span<const int32_t> prompt) = 0;
  // n_tokens of each of them, one of all at a time.
  virtual void decode_together(int n_tokens) = 0;
};

std::unique_ptr<Program> make_libllama(const std::string& model, const Setup& setup,
                                       bool has_flash_attention, bool is_repacked);
std::string libllama_name(bool has_flash_attention, bool is_repacked);

class Winnow : public Program {
 public:
  // What the next run would take, from the state that it starts in.
  virtual Work prefill_work(int n_tokens) const = 0;
  virtual Work decode_work(int n_tokens) const = 0;
  virtual Work together_work(int n_tokens) const = 0;
};

// `model` must outlive it.
std::unique_ptr<Winnow> make_winnow(const model::Model& model, const Setup& setup,
                                    const std::string& policy);

}  // namespace winnow::bench
