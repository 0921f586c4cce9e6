// Prompts of a wanted length: how much text goes around what a task asks for.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "eval/random.h"
#include "eval/task.h"

namespace winnow::eval {

// What sample `index` of a run draws from: random.Random(seed * 1000000 + index). Prompts of all lengths draw the same.
PythonRandom sample_random(const SampleRequest& request);

// A sample with its id and the label "length", and else empty.
Sample new_sample(const SampleRequest& request);

// Real tokens of the prompt with the sample's question: template, document, blank line and question.
int prompt_tokens(const SampleRequest& request, const Sample& sample, int question = 0);

// The largest n from smallest to largest for which build(n) has at most the wanted length; build(n) grows with n. Throws
// invalid_argument naming the task's least length where even the smallest is too long.
int largest_fitting(const SampleRequest& request, int smallest,
                    const std::function<Sample(int)>& build, int largest = 1 << 30);

// Whether the prompt is at most 5 % shorter than wanted.
bool is_reached(const SampleRequest& request, const Sample& sample);

// Where to cut a text at or before byte `end`: at the end of a word where one is near, and inside no character.
size_t whole_end(std::string_view text, size_t end);

// Throws invalid_argument where the prompt is more than 5 % shorter than wanted, as `what` ("the haystack") has no more
// text.
void check_reached(const SampleRequest& request, const Sample& sample, const std::string& what);

// The next sentence of filler, or none where the text is at its end.
using Filler = std::function<std::optional<std::string>()>;

// The sample with as many sentences of filler as fit, the last one cut where that brings the length closer. Throws as
// largest_fitting() does, and invalid_argument where the filler ends more than 5 % too early.
Sample fit_filler(const SampleRequest& request, const Filler& filler,
                  const std::function<Sample(std::span<const std::string>)>& build);

std::string joined(std::span<const std::string> parts, std::string_view separator);

}  // namespace winnow::eval
