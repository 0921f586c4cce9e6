#include "engine/engine.h"
#include "engine/work.h"
#include "program.h"

namespace winnow::bench {
namespace {

class WinnowProgram final : public Winnow {
 public:
  WinnowProgram(const model::Model& model, const Setup& setup, const std::string& policy)
      : setup_(setup),
        model_(model),
        policy_(policy::Policy::parse(policy)),
        name_(policy_.spec()),
        engine_(model, {.n_threads = setup.n_threads, .n_batch = 512}),
        sequence_(make_sequence(setup.n_positions)) {}

  const std::string& name() const override { return name_; }

  void rewind(int n_positions) override { engine::trim(sequence_, n_positions); }

  void prefill(std::span<const int32_t> tokens) override { feed(sequence_, tokens); }

  void decode(int n_tokens) override {
    for (int i = 0; i < n_tokens; ++i) {
      const engine::DecodeInput input{&sequence_, 100 + i};
      engine_.decode({&input, 1});
    }
  }

  void start_together(std::span<const int32_t> prompt) override {
    together_.clear();
    for (int i = 0; i < setup_.n_sequences; ++i) {
      together_.push_back(make_sequence(setup_.n_together));
      feed(together_.back(), prompt);
    }
  }

  void decode_together(int n_tokens) override {
    std::vector<engine::DecodeInput> inputs(together_.size());
    for (int i = 0; i < n_tokens; ++i) {
      for (size_t sequence = 0; sequence < together_.size(); ++sequence) {
        inputs[sequence] = {&together_[sequence], 100 + i + static_cast<int>(sequence)};
      }
      engine_.decode(inputs);
    }
  }

  Work prefill_work(int n_tokens) const override {
    return {.operations = engine::prompt_operations(model_, sequence_.cache, n_tokens)};
  }

  // As if the cache stayed as long as it is: the few rows that come meanwhile are nothing beside it.
  Work decode_work(int n_tokens) const override {
    return {.bytes = n_tokens * static_cast<double>(engine::step_weight_bytes(model_) +
                                                    engine::attended_bytes(sequence_.cache))};
  }

  Work together_work(int n_tokens) const override {
    size_t bytes = engine::step_weight_bytes(model_);
    for (const engine::Sequence& sequence : together_) {
      bytes += engine::attended_bytes(sequence.cache);
    }
    return {.bytes = n_tokens * static_cast<double>(bytes)};
  }

 private:
  engine::Sequence make_sequence(int max_rows) const {
    return {engine::cache_shape(model_.hyper(), cache::RowType::kF16, cache::RowType::kF16, policy_,
                                max_rows),
            policy_};
  }

  void feed(engine::Sequence& sequence, std::span<const int32_t> tokens) {
    const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
    engine_.feed({&feed, 1}, {.progress = {}});
  }

  Setup setup_;
  const model::Model& model_;
  policy::Policy policy_;
  std::string name_;
  engine::Engine engine_;
  engine::Sequence sequence_;
  std::vector<engine::Sequence> together_;
};

}  // namespace

std::unique_ptr<Winnow> make_winnow(const model::Model& model, const Setup& setup,
                                    const std::string& policy) {
  return std::make_unique<WinnowProgram>(model, setup, policy);
}

}  // namespace winnow::bench
