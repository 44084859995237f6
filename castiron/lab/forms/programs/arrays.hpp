// Tensors from and to .npy files (NumPy's format 1.0 to 3.0, little-endian, C order). Several outputs stand in one file,
// one after the other, as numpy.save appends them.
#pragma once
#include <ATen/ATen.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct Kind {
    std::string_view name;
    at::ScalarType type;
};

inline constexpr Kind kinds[] = {
    {"<f4", at::kFloat}, {"<f8", at::kDouble}, {"<f2", at::kHalf}, {"<i8", at::kLong}, {"<i4", at::kInt},
    {"<i2", at::kShort}, {"|i1", at::kChar},   {"|u1", at::kByte}, {"|b1", at::kBool},
};

inline std::string between(const std::string &text, std::string_view start, char end)
{
    auto from = text.find(start);
    if (from == std::string::npos) throw std::runtime_error("the .npy header lacks " + std::string(start));
    from += start.size();
    return text.substr(from, text.find(end, from) - from);
}

inline at::Tensor read_npy(const char *path)
{
    std::ifstream file(path, std::ios::binary);
    unsigned char start[12] = {};
    file.read(reinterpret_cast<char *>(start), 10);
    if (!file || std::string_view(reinterpret_cast<char *>(start), 6) != "\x93NUMPY")
        throw std::runtime_error(std::string(path) + " is no .npy file");
    size_t length = start[8] | start[9] << 8;
    if (start[6] > 1) {
        file.read(reinterpret_cast<char *>(start) + 10, 2);
        length |= size_t{start[10]} << 16 | size_t{start[11]} << 24;
    }
    std::string header(length, ' ');
    file.read(header.data(), static_cast<std::streamsize>(length));
    auto descr = between(header, "'descr': '", '\'');
    std::vector<int64_t> sizes;
    auto shape = between(header, "'shape': (", ')');
    for (size_t i = 0; i < shape.size();) {
        size_t used = 0;
        sizes.push_back(std::stoll(shape.substr(i), &used));
        i += used;
        while (i < shape.size() && (shape[i] == ',' || shape[i] == ' ')) i++;
    }
    for (auto [name, type] : kinds)
        if (name == descr) {
            auto tensor = at::empty(sizes, type);
            file.read(static_cast<char *>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
            if (!file) throw std::runtime_error(std::string(path) + " is cut off");
            return tensor;
        }
    throw std::runtime_error(std::string(path) + " is of type " + descr + ", which this program does not read");
}

inline void write_npy(std::ostream &file, const at::Tensor &given)
{
    auto wide = given.scalar_type() == at::kBFloat16 ? given.to(at::kFloat) : given;
    auto tensor = wide.cpu().contiguous();
    std::string descr;
    for (auto [name, type] : kinds)
        if (type == tensor.scalar_type()) descr = name;
    if (descr.empty()) throw std::runtime_error("an output is of a type that .npy has not");
    std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
    for (auto size : tensor.sizes()) header += std::to_string(size) + ",";
    header += "), }";
    header.append(63 - (header.size() + 10) % 64, ' ');
    header += '\n';
    file.write("\x93NUMPY\x01\x00", 8);
    char length[2] = {static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
    file.write(length, 2);
    file << header;
    file.write(static_cast<char *>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
}

inline void write_outputs(const char *path, const std::vector<at::Tensor> &outputs)
{
    std::ofstream file(path, std::ios::binary);
    for (auto &tensor : outputs) write_npy(file, tensor);
    if (!file.flush()) throw std::runtime_error(std::string(path) + " cannot be written");
}

// Seconds since the first call.
inline double clock_s()
{
    static const auto start = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `run` once, then the number of times that is asked for; what each took goes to standard output as JSON.
template <class Run> std::vector<at::Tensor> timed(Run run, int repeat, double loaded)
{
    double before = clock_s();
    auto outputs = run();
    std::cout << "{\"load\": " << loaded << ", \"first\": " << clock_s() - before << ", \"calls\": [";
    for (int i = 0; i < repeat; i++) {
        double start = clock_s();
        run();
        std::cout << (i ? ", " : "") << clock_s() - start;
    }
    std::cout << "]}\n";
    return outputs;
}
