#include "model/hyperparameters.h"

#include <cmath>

#include "base/log.h"
#include "model/model.h"

namespace winnow::model {
namespace {

// Far beyond any model of these families, and small enough that no product of two overflows.
constexpr int kMaxLayers = 512;  // libllama's limit
constexpr int kMaxEmbd = 1 << 17;
constexpr int kMaxHeads = 1 << 12;
constexpr int kMaxHeadDim = 1 << 10;
constexpr int kMaxFf = 1 << 20;
constexpr int kMaxCtx = 1 << 30;
constexpr int kMaxVocab = 1 << 24;

// Reads keys "ARCHITECTURE.name".
class Reader {
 public:
  Reader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string key(const char* name) const { return prefix_ + name; }

  int count(const char* name, int high) const {
    refuse_array(name);
    return static_cast<int>(file_.integer(key(name), 1, high));
  }
  int count_or(const char* name, int high, int missing) const {
    refuse_array(name);
    return static_cast<int>(file_.find_integer(key(name), 1, high).value_or(missing));
  }

 private:
  void refuse_array(const char* name) const {
    if (file_.is_array(key(name))) {
      file_.throw_unsupported("key '" + key(name) + "' with a value per layer");
    }
  }

  const GgufFile& file_;
  std::string prefix_;
};

// What would change the graph and is not built.
void refuse_variants(const GgufFile& file, const Reader& read) {
  if (file.find_integer(read.key("expert_count"), 0, INT32_MAX).value_or(0) > 0) {
    file.throw_unsupported("mixture of experts ('" + read.key("expert_count") + "')");
  }
  if (!file.find_bool(read.key("attention.causal")).value_or(true)) {
    file.throw_unsupported("attention that is not causal ('" + read.key("attention.causal") + "')");
  }
}

constexpr float kMaxScaling = 1e6F;

// 1 / factor; 0 stands for no scaling.
float read_freq_scale(const GgufFile& file, const Reader& read) {
  auto factor = file.find_number(read.key("rope.scaling.factor"), 0.0F, kMaxScaling);
  if (!factor) {
    factor = file.find_number(read.key("rope.scale_linear"), 0.0F, kMaxScaling);  // the old name
  }
  return factor.value_or(0.0F) == 0.0F ? 1.0F : 1.0F / *factor;
}

// Of the keys for yarn, libllama reads for these families only those below.
Rope read_rope(const GgufFile& file, const Reader& read, const Family& family,
               const Hyperparameters& hyper) {
  const std::string type = file.find_string(read.key("rope.scaling.type")).value_or("linear");
  const std::optional<RopeScaling> scaling = find_rope_scaling(type);
  // Long rope scales by the factors beside it.
  if (!scaling || (scaling == RopeScaling::kLongrope && !family.has_context_factors)) {
    file.throw_unsupported("rope scaling " + quoted(type) + " (supported: none, linear, yarn" +
                           (family.has_context_factors ? ", longrope)" : ")"));
  }
  Rope rope;
  rope.scaling = *scaling;
  rope.mode = family.rope_mode;
  rope.n_rot = read.count_or("rope.dimension_count", kMaxHeadDim, hyper.head_dim);
  rope.freq_base =
      file.find_number(read.key("rope.freq_base"), 1.0F, 1e12F).value_or(rope.freq_base);
  rope.freq_scale = read_freq_scale(file, read);
  rope.attn_factor =
      file.find_number(read.key("rope.scaling.attn_factor"), 0.0F, kMaxScaling).value_or(1.0F);
  rope.n_ctx_orig = read.count_or("rope.scaling.original_context_length", kMaxCtx, 0);
  return rope;
}

// Factors that a file brings for long contexts take the place of any scaling.
void refuse_rope_options(const GgufFile& file, const Rope& stated) {
  if (stated.scaling == RopeScaling::kLongrope ||
      file.find_tensor("rope_factors_long.weight") != nullptr) {
    file.throw_unsupported(
        "rope scaling by option beside the file's own factors for long contexts (longrope)");
  }
}

// 0 where there is none.
int read_window(const GgufFile& file, const Reader& read) {
  const auto swa_window = file.find_integer(read.key("attention.sliding_window"), 0, kMaxCtx);
  return static_cast<int>(swa_window.value_or(0));
}

// Some layers see a window: of every `pattern` layers all but the last. Their rotation is never scaled.
void read_windows(const GgufFile& file, const Reader& read, Hyperparameters& hyper) {
  const int swa_window = read_window(file, read);
  const int pattern = read.count_or("attention.sliding_window_pattern", kMaxLayers, 6);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    hyper.swa_windows[static_cast<size_t>(layer)] = layer % pattern < pattern - 1 ? swa_window : 0;
  }
  hyper.rope_swa = hyper.rope;
  hyper.rope_swa.freq_base =
      file.find_number(read.key("rope.freq_base_swa"), 1.0F, 1e12F).value_or(10000.0F);
  hyper.rope_swa.freq_scale = 1.0F;
}

void warn_about_window(const GgufFile& file, const Reader& read, const Hyperparameters& hyper) {
  const int swa_window = read_window(file, read);
  if (swa_window > 0 && swa_window < hyper.n_ctx_train) {
    log_warning("'" + file.path() + "': the sliding attention window of " +
                std::to_string(swa_window) + " positions is not applied, as in libllama");
  }
}

// 1 / sqrt(head_dim), or what the largest model of the family takes for head_dim.
float read_query_scale(const Family& family, const Hyperparameters& hyper) {
  const int dim = hyper.n_layers == family.n_layers_scaled_by_embd ? hyper.n_embd / hyper.n_heads
                                                                   : hyper.head_dim;
  return 1.0F / sqrtf(static_cast<float>(dim));
}

int read_n_vocab(const GgufFile& file) {
  const ggml_tensor* token_embd = file.find_tensor("token_embd.weight");
  if (token_embd == nullptr) {
    file.throw_damaged("tensor 'token_embd.weight' is missing");
  }
  if (token_embd->ne[1] > kMaxVocab) {
    file.throw_damaged("tensor 'token_embd.weight' has " + std::to_string(token_embd->ne[1]) +
                       " rows (allowed: " + std::to_string(kMaxVocab) + ")");
  }
  return static_cast<int>(token_embd->ne[1]);
}

void check_consistency(const GgufFile& file, const Family& family, const Hyperparameters& hyper) {
  if (hyper.n_heads % hyper.n_kv_heads != 0) {
    file.throw_damaged(std::to_string(hyper.n_heads) + " heads cannot share " +
                       std::to_string(hyper.n_kv_heads) + " KV heads evenly");
  }
  if (hyper.head_dim % 2 != 0) {
    file.throw_damaged("heads of length " + std::to_string(hyper.head_dim) + " cannot rotate");
  }
  if (hyper.rope.n_rot > hyper.head_dim || hyper.rope.n_rot % 2 != 0) {
    file.throw_damaged(std::to_string(hyper.rope.n_rot) + " dimensions of heads of length " +
                       std::to_string(hyper.head_dim) + " cannot rotate");
  }
  if (hyper.rope.n_rot != hyper.head_dim && !family.has_partial_rotation) {
    file.throw_unsupported("rotation of " + std::to_string(hyper.rope.n_rot) +
                           " dimensions of heads of length " + std::to_string(hyper.head_dim));
  }
}

}  // namespace

Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family,
                                     const RopeOptions& rope) {
  const Reader read(file, family.architecture);
  refuse_variants(file, read);

  Hyperparameters hyper;
  hyper.architecture = family.architecture;
  hyper.n_layers = read.count("block_count", kMaxLayers);
  hyper.n_embd = read.count("embedding_length", kMaxEmbd);
  hyper.n_heads = read.count("attention.head_count", kMaxHeads);
  hyper.n_kv_heads = read.count_or("attention.head_count_kv", kMaxHeads, hyper.n_heads);
  if (!file.has(read.key("attention.key_length")) && hyper.n_embd % hyper.n_heads != 0) {
    file.throw_damaged("embeddings of length " + std::to_string(hyper.n_embd) +
                       " cannot be cut into " + std::to_string(hyper.n_heads) + " heads");
  }
  hyper.head_dim = read.count_or("attention.key_length", kMaxHeadDim, hyper.n_embd / hyper.n_heads);
  const int value_length =
      read.count_or("attention.value_length", kMaxHeadDim, hyper.n_embd / hyper.n_heads);
  if (value_length != hyper.head_dim) {
    file.throw_unsupported("keys of length " + std::to_string(hyper.head_dim) +
                           " with values of length " + std::to_string(value_length));
  }
  hyper.n_ff = read.count("feed_forward_length", kMaxFf);
  hyper.n_vocab = read_n_vocab(file);
  hyper.n_ctx_train = read.count("context_length", kMaxCtx);
  hyper.rms_epsilon = file.number(read.key("attention.layer_norm_rms_epsilon"), 0.0F, 1.0F);
  const Rope stated = read_rope(file, read, family, hyper);
  if (rope.is_given()) {
    refuse_rope_options(file, stated);
  }
  hyper.rope = resolve_rope(stated, rope, hyper.n_ctx_train);
  hyper.n_ctx_scaled = scaled_context(stated, rope, hyper.n_ctx_train);
  hyper.swa_windows.assign(static_cast<size_t>(hyper.n_layers), 0);
  if (family.has_windows) {
    read_windows(file, read, hyper);
  } else {
    warn_about_window(file, read, hyper);
  }
  hyper.query_scale = read_query_scale(family, hyper);
  if (family.scales_embeddings) {
    hyper.embedding_scale = sqrtf(static_cast<float>(hyper.n_embd));
  }
  if (family.has_logit_softcap) {
    hyper.logit_softcap =
        file.find_number(read.key("final_logit_softcapping"), 0.0F, 1e6F).value_or(0.0F);
  }
  check_consistency(file, family, hyper);
  return hyper;
}

}  // namespace winnow::model
