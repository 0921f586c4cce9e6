// The vocabularies of tiny models: byte-level BPE with a few merges, or SentencePiece with a few words.
#pragma once

#include "support/tiny_model.h"

namespace winnow::test {

// Writes the tokenizer's keys; returns the number of tokens.
int write_vocabulary(gguf_context* gguf, const TinyModelOptions& options);

}  // namespace winnow::test
