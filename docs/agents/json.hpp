// JSON as the headers of frames have it: UTF-8, whole numbers of 64 bits, finite numbers.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

struct Json {
  using List = std::vector<Json>;
  using Object = std::map<std::string, Json>;

  std::variant<std::nullptr_t, bool, int64_t, double, std::string, List, Object> value;

  Json() : value(nullptr) {}
  Json(std::nullptr_t) : value(nullptr) {}
  Json(bool flag) : value(flag) {}
  Json(double number) : value(number) {}
  Json(const char* text) : value(std::string(text)) {}
  Json(std::string text) : value(std::move(text)) {}
  Json(List list) : value(std::move(list)) {}
  Json(Object object) : value(std::move(object)) {}
  template <class Whole, class = std::enable_if_t<std::is_integral_v<Whole>>>
  Json(Whole number) : value(static_cast<int64_t>(number)) {}
  template <class Each>
  Json(const std::vector<Each>& items) : value(List(items.begin(), items.end())) {}

  bool isNull() const { return std::holds_alternative<std::nullptr_t>(value); }

  template <class Type>
  const Type& as() const {
    if (const Type* found = std::get_if<Type>(&value)) return *found;
    throw std::invalid_argument("a field of the request has another type");
  }

  double number() const {
    if (const int64_t* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
    return as<double>();
  }

  // The field of an object; null where it has none.
  const Json& operator[](const std::string& name) const {
    static const Json null;
    const Object& object = as<Object>();
    auto found = object.find(name);
    return found == object.end() ? null : found->second;
  }
};

class JsonReader {
 public:
  static Json parse(std::string_view text) {
    JsonReader reader{text};
    Json json = reader.read(0);
    reader.skipBlanks();
    if (!reader.text_.empty()) throw std::invalid_argument("there is more behind the JSON");
    return json;
  }

 private:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json read(int depth) {
    if (depth > 64) throw std::invalid_argument("the JSON is too deep");
    skipBlanks();
    if (take("{")) return readObject(depth);
    if (take("[")) return readList(depth);
    if (take("\"")) return readText();
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("null")) return nullptr;
    return readNumber();
  }

  Json readObject(int depth) {
    Json::Object object;
    skipBlanks();
    if (take("}")) return object;
    do {
      skipBlanks();
      expect("\"");
      std::string name = readText();
      skipBlanks();
      expect(":");
      object[name] = read(depth + 1);
      skipBlanks();
    } while (take(","));
    expect("}");
    return object;
  }

  Json readList(int depth) {
    Json::List list;
    skipBlanks();
    if (take("]")) return list;
    do {
      list.push_back(read(depth + 1));
      skipBlanks();
    } while (take(","));
    expect("]");
    return list;
  }

  std::string readText() {
    std::string found;
    while (!take("\"")) {
      if (text_.empty()) throw std::invalid_argument("a text has no end");
      if (!take("\\")) {
        found += text_.front();
        text_.remove_prefix(1);
      } else if (take("u")) {
        appendUtf8(found, readEscape());
      } else {
        static constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
        size_t place = text_.empty() ? kNames.npos : kNames.find(text_.front());
        if (place == kNames.npos) throw std::invalid_argument("a text has an unknown escape");
        found += kMeant[place];
        text_.remove_prefix(1);
      }
    }
    return found;
  }

  uint32_t readEscape() {
    uint32_t code = readHex();
    if (code < 0xD800 || code > 0xDBFF || !take("\\u")) return code;
    return 0x10000 + ((code - 0xD800) << 10) + (readHex() - 0xDC00);
  }

  uint32_t readHex() {
    uint32_t code = 0;
    const char* begin = text_.data();
    if (text_.size() < 4 || std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4)
      throw std::invalid_argument("an escape is not hexadecimal");
    text_.remove_prefix(4);
    return code;
  }

  static void appendUtf8(std::string& text, uint32_t code) {
    static constexpr int kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    text += static_cast<char>(kLead[more] | (code >> (6 * more)));
    while (more-- > 0) text += static_cast<char>(0x80 | ((code >> (6 * more)) & 0x3F));
  }

  Json readNumber() {
    const char* begin = text_.data();
    const char* end = begin + text_.size();
    int64_t whole = 0;
    double number = 0;
    auto [afterWhole, wholeError] = std::from_chars(begin, end, whole);
    auto [after, error] = std::from_chars(begin, end, number);
    if (error != std::errc()) throw std::invalid_argument("expected a value of JSON");
    text_.remove_prefix(after - begin);
    if (wholeError == std::errc() && afterWhole == after) return whole;
    return number;
  }

  void skipBlanks() {
    while (!text_.empty() && std::string_view(" \t\r\n").find(text_.front()) != std::string::npos)
      text_.remove_prefix(1);
  }

  bool take(std::string_view word) {
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  void expect(std::string_view word) {
    if (!take(word)) throw std::invalid_argument("expected " + std::string(word) + " in JSON");
  }

  std::string_view text_;
};

inline void writeText(std::string& out, const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (unsigned char each : text) {
    if (each == '"' || each == '\\') out += '\\';
    if (each < 0x20) {
      out += {'\\', 'u', '0', '0', kHex[each >> 4], kHex[each & 15]};
    } else {
      out += static_cast<char>(each);
    }
  }
  out += '"';
}

// Append the text of a value. Numbers are written so that the same ones are read again.
inline void write(std::string& out, const Json& json) {
  auto writeNumber = [&out](auto number) {
    char digits[32];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  };
  if (json.isNull()) {
    out += "null";
  } else if (auto flag = std::get_if<bool>(&json.value)) {
    out += *flag ? "true" : "false";
  } else if (auto whole = std::get_if<int64_t>(&json.value)) {
    writeNumber(*whole);
  } else if (auto number = std::get_if<double>(&json.value)) {
    writeNumber(*number);
  } else if (auto text = std::get_if<std::string>(&json.value)) {
    writeText(out, *text);
  } else if (auto list = std::get_if<Json::List>(&json.value)) {
    const char* before = "[";
    for (const Json& each : *list) {
      out += before;
      write(out, each);
      before = ",";
    }
    out += list->empty() ? "[]" : "]";
  } else {
    const char* before = "{";
    for (const auto& [name, each] : json.as<Json::Object>()) {
      out += before;
      writeText(out, name);
      out += ':';
      write(out, each);
      before = ",";
    }
    out += json.as<Json::Object>().empty() ? "{}" : "}";
  }
}
