// Runs a TorchScript file: torchscript MODEL OUTPUT THREADS REPEAT INPUT.npy...
#include <ATen/Parallel.h>
#include <torch/script.h>

#include "arrays.hpp"

static void collect(const c10::IValue &value, std::vector<at::Tensor> &out)
{
    if (value.isTensor()) out.push_back(value.toTensor());
    else if (value.isTuple())
        for (auto &v : value.toTupleRef().elements()) collect(v, out);
    else if (value.isList())
        for (const c10::IValue &v : value.toListRef()) collect(v, out);
    else if (value.isGenericDict())
        for (auto &entry : value.toGenericDict()) collect(entry.value(), out);
}

int main(int count, char **arguments)
try {
    if (count < 5) return std::cerr << "usage: torchscript MODEL OUTPUT THREADS REPEAT INPUT.npy...\n", 2;
    clock_s();
    at::set_num_threads(std::stoi(arguments[3]));
    torch::InferenceMode guard;
    auto module = torch::jit::load(arguments[1]);
    module.eval();
    double loaded = clock_s();
    std::vector<torch::jit::IValue> inputs;
    for (int i = 5; i < count; i++) inputs.emplace_back(read_npy(arguments[i]));
    auto run = [&] {
        std::vector<at::Tensor> outputs;
        collect(module.forward(inputs), outputs);
        return outputs;
    };
    write_outputs(arguments[2], timed(run, std::stoi(arguments[4]), loaded));
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
