// Runs a package of AOTInductor: aotinductor MODEL OUTPUT THREADS REPEAT INPUT.npy...
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "arrays.hpp"

int main(int count, char **arguments)
try {
    if (count < 5) return std::cerr << "usage: aotinductor MODEL OUTPUT THREADS REPEAT INPUT.npy...\n", 2;
    clock_s();
    at::set_num_threads(std::stoi(arguments[3]));
    c10::InferenceMode guard;
    torch::inductor::AOTIModelPackageLoader loader(arguments[1]);
    double loaded = clock_s();
    std::vector<at::Tensor> inputs;
    for (int i = 5; i < count; i++) inputs.push_back(read_npy(arguments[i]));
    auto run = [&] { return loader.run(inputs); };
    write_outputs(arguments[2], timed(run, std::stoi(arguments[4]), loaded));
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
