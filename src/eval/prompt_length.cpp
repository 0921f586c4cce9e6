#include "eval/prompt_length.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace winnow::eval {
namespace {

// A length that is at most this far below the wanted one is as wanted.
constexpr double kTolerance = 0.05;

// The largest n in [fits, breaks) for which `is_fitting` holds; it holds at `fits` and not at `breaks`.
int bisect(int fits, int breaks, const std::function<bool(int)>& is_fitting) {
  while (breaks - fits > 1) {
    const int middle = fits + (breaks - fits) / 2;
    (is_fitting(middle) ? fits : breaks) = middle;
  }
  return fits;
}

void check_least(const SampleRequest& request, int n_least) {
  if (n_least > request.n_tokens) {
    throw Error(ErrorCode::kInvalidArgument,
                "a prompt of " + std::to_string(request.n_tokens) +
                    " tokens is too short for this task: without filler it has " +
                    std::to_string(n_least));
  }
}

}  // namespace

PythonRandom sample_random(const SampleRequest& request) {
  return PythonRandom(request.seed * 1000000 + static_cast<uint64_t>(request.index));
}

Sample new_sample(const SampleRequest& request) {
  Sample sample;
  sample.id = std::to_string(request.n_tokens) + "-" + std::to_string(request.seed) + "-" +
              std::to_string(request.index);
  sample.labels["length"] = std::to_string(request.n_tokens);
  return sample;
}

int prompt_tokens(const SampleRequest& request, const Sample& sample, int question) {
  return request.n_template_tokens + request.count_tokens(sample.document) +
         request.count_tokens("\n\n" + sample.questions.at(static_cast<size_t>(question)));
}

int largest_fitting(const SampleRequest& request, int smallest,
                    const std::function<Sample(int)>& build, int largest) {
  WINNOW_CHECK(smallest <= largest);
  check_least(request, prompt_tokens(request, build(smallest)));
  const auto is_fitting = [&](int n) {
    return prompt_tokens(request, build(n)) <= request.n_tokens;
  };
  int fits = smallest;
  int step = 1;
  while (fits < largest) {
    const int next = step < largest - smallest ? smallest + step : largest;
    if (!is_fitting(next)) {
      return bisect(fits, next, is_fitting);
    }
    fits = next;
    step *= 2;
  }
  return largest;
}

size_t whole_end(std::string_view text, size_t end) {
  constexpr size_t kLongWord = 32;  // bytes; such as UUIDs, which are cut
  if (end >= text.size()) {
    return text.size();
  }
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  const size_t space = text.find_last_of(" \n", end);
  const size_t word = space == std::string_view::npos ? 0 : space;
  return end - word < kLongWord ? word : end;
}

bool is_reached(const SampleRequest& request, const Sample& sample) {
  return prompt_tokens(request, sample) >= (1 - kTolerance) * request.n_tokens;
}

void check_reached(const SampleRequest& request, const Sample& sample, const std::string& what) {
  if (!is_reached(request, sample)) {
    throw Error(ErrorCode::kInvalidArgument, what +
                                                 " ends too early: with all of it the prompt has " +
                                                 std::to_string(prompt_tokens(request, sample)) +
                                                 " tokens of " + std::to_string(request.n_tokens));
  }
}

Sample fit_filler(const SampleRequest& request, const Filler& filler,
                  const std::function<Sample(std::span<const std::string>)>& build) {
  check_least(request, prompt_tokens(request, build({})));
  std::vector<std::string> sentences;
  const auto first = [&](int n) {
    return build(std::span(sentences).first(static_cast<size_t>(n)));
  };
  const auto is_fitting = [&](int n) {
    return prompt_tokens(request, first(n)) <= request.n_tokens;
  };

  int n_fits = 0;
  int n_grown = 8;
  bool is_at_end = false;
  while (!is_at_end) {
    while (!is_at_end && std::ssize(sentences) < n_grown) {
      std::optional<std::string> sentence = filler();
      is_at_end = !sentence;
      if (sentence) {
        sentences.push_back(std::move(*sentence));
      }
    }
    const auto n = static_cast<int>(sentences.size());
    if (!is_fitting(n)) {
      n_fits = bisect(n_fits, n, is_fitting);
      break;
    }
    n_fits = n;
    n_grown = 2 * n_grown;
  }

  const auto n_kept = static_cast<size_t>(n_fits);
  if (n_kept < sentences.size()) {  // part of the next sentence
    const std::string next = sentences[n_kept];
    sentences.resize(n_kept + 1);
    const auto is_cut_fitting = [&](int n_bytes) {
      sentences[n_kept] = next.substr(0, whole_end(next, static_cast<size_t>(n_bytes)));
      return is_fitting(n_fits + 1);
    };
    const auto n_cut =
        static_cast<size_t>(bisect(0, static_cast<int>(next.size()), is_cut_fitting));
    sentences[n_kept] = next.substr(0, whole_end(next, n_cut));
    sentences.resize(n_kept + (sentences[n_kept].empty() ? 0 : 1));
  }
  Sample sample = build(sentences);
  check_reached(request, sample, "the haystack");
  return sample;
}

std::string joined(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text.append(i == 0 ? "" : separator).append(parts[i]);
  }
  return text;
}

}  // namespace winnow::eval
