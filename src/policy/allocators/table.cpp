// table: each layer, or each KV head, keeps what a table of the user's says.
//
// Source    none; profiles of heads such as HeadKV's (Fu et al., 2024, arXiv 2410.19258) or DuoAttention's (Xiao et al., 2024,
//           arXiv 2410.10819) come to this
// Rows      weights:  n = R w / sum w                                               (1)
//           rows:     n = r + (R - sum r) / N                                       (2)
// Symbols   R = rows to divide, N = layers or the heads of one; w, r = the table's numbers, of a layer their mean
// Needs     as many layers and heads as there are: those without a sliding window
// Differs   n is rounded and kept between what a head must keep and what it has, as in all allocators

#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "policy/allocators.h"
#include "policy/head_table.h"

namespace winnow::policy {
namespace {

struct TableFile {
  std::string table;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(table, "table", "FILE",
      "JSON: {\"weights\": ...} or {\"rows\": ...} of each layer, or of each KV head of each "
      "layer");
  }
};

struct TableDigest {
  std::string table_digest;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(table_digest, "table_digest", "16 hexadecimal digits",
      "of the file's content, filled in where it is not given; another content is refused");
  }
};

// Eqs. (1) and (2): what each of numbers [N] gets of n_rows.
void divide_by(HeadTable::Unit unit, double n_rows, std::span<const double> numbers,
               const auto& put) {
  double sum = 0;
  for (const double number : numbers) {
    sum += number;
  }
  const auto n = static_cast<double>(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (unit == HeadTable::Unit::kRows) {
      put(i, numbers[i] + (n_rows - sum) / n);
    } else {
      put(i, sum > 0 ? n_rows * (numbers[i] / sum) : n_rows / n);
    }
  }
}

class TableOfLayers final : public LayerAllocator {
 public:
  explicit TableOfLayers(std::shared_ptr<const HeadTable> table) : table_(std::move(table)) {
    for (int layer = 0; layer < table_->n_layers(); ++layer) {
      means_.push_back(table_->mean(layer));
    }
  }

  void check_shape(int n_layers, int n_kv_heads) const override {
    if (n_layers != table_->n_layers()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the table has " + std::to_string(table_->n_layers()) +
                      " layers, and policies cut " + std::to_string(n_layers) + " of the model's");
    }
    if (table_->is_per_head && n_kv_heads != table_->n_kv_heads()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the table has " + std::to_string(table_->n_kv_heads()) +
                      " KV heads in a layer, the model " + std::to_string(n_kv_heads));
    }
  }

  void allocate(const Budget& budget, std::span<const double> /*measured*/,
                std::span<double> rows) const override {
    divide_by(table_->unit, budget.rows * static_cast<double>(rows.size()), means_,
              [&](size_t layer, double n) { rows[layer] = n; });
  }

 private:
  std::shared_ptr<const HeadTable> table_;
  std::vector<double> means_;  // [n_layers]
};

class TableOfHeads final : public HeadAllocator {
 public:
  explicit TableOfHeads(std::shared_ptr<const HeadTable> table) : table_(std::move(table)) {}

  Sharing sharing() const override { return Sharing::kNone; }

  void allocate(int64_t n_rows, std::span<const HeadDemand> heads, Scratch& scratch,
                std::span<int> n_keep) const override {
    Division& division = scratch.division;
    division.shares.clear();
    for (const HeadDemand& head : heads) {
      division.shares.push_back(
          {.target = static_cast<double>(n_rows) / static_cast<double>(heads.size()),
           .low = head.n_least,
           .high = head.n});
    }
    if (table_->is_per_head) {
      divide_by(table_->unit, static_cast<double>(n_rows),
                table_->layers[static_cast<size_t>(heads.front().ordinal)],
                [&](size_t head, double n) { division.shares[head].target = n; });
    }
    divide_rows(n_rows, 1, division);
    for (size_t i = 0; i < heads.size(); ++i) {
      n_keep[i] = static_cast<int>(division.rows[i]);
    }
  }

 private:
  std::shared_ptr<const HeadTable> table_;
};

}  // namespace

LayersAndHeads make_table(OptionReader& reader) {
  const std::string path = read_options<TableFile>(reader).table;
  std::string content;
  std::shared_ptr<const HeadTable> table;
  if (path.empty()) {
    reader.add_problem("the allocator table needs a file, as in table=heads.json");
  } else {
    try {
      content = read_text_file(path);
      table = std::make_shared<const HeadTable>(parse_head_table(content));
    } catch (const Error& error) {
      reader.add_problem("table=" + path + ": " + error.what());
    }
  }
  const std::string digest = content_hash(std::as_bytes(std::span(content)));
  reader.give_default("table_digest", digest);
  const std::string given = read_options<TableDigest>(reader).table_digest;
  if (table == nullptr) {
    return {};
  }
  if (given != digest) {
    reader.add_problem("table=" + path + " has another content: its digest is " + digest +
                       ", not " + given);
  }
  return {std::make_unique<TableOfLayers>(table), std::make_unique<TableOfHeads>(table)};
}

}  // namespace winnow::policy
