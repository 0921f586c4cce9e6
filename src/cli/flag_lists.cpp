#include "cli/flag_lists.h"

#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace winnow::cli {

std::vector<std::string> split_lists(const std::vector<std::string>& lists, const char* flag,
                                     char separator) {
  std::vector<std::string> items;
  for (const std::string& list : lists) {
    std::string_view rest = list;
    while (true) {
      const size_t end = rest.find(separator);
      const std::string_view item = trim(rest.substr(0, end));
      if (item.empty()) {
        throw Error(ErrorCode::kInvalidArgument, std::string(flag) + " '" + list +
                                                     "' has an empty item (allowed: items with '" +
                                                     separator + "' in between)");
      }
      items.emplace_back(item);
      if (end == std::string_view::npos) {
        break;
      }
      rest.remove_prefix(end + 1);
    }
  }
  return items;
}

}  // namespace winnow::cli
