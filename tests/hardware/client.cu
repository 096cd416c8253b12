// A CUDA client that adds two vectors, checks the sum, and stays while the file is there that it is told,
// so that it is seen by whom it uses.
// Its memory is taken by cudaMalloc: in virtual machines managed memory has hung GPUs.
#include <cstdio>
#include <unistd.h>
#include <vector>

__global__ void add(const float *one, const float *other, float *sum, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) sum[at] = one[at] + other[at];
}

int main(int count_of_words, char **words) {
  const int count = 1 << 20;
  const size_t size = count * sizeof(float);
  std::vector<float> first(count), second(count, 1), result(count);
  for (int at = 0; at < count; at++) first[at] = at % 1000;
  float *one, *other, *sum;
  if (cudaMalloc(&one, size) || cudaMalloc(&other, size) || cudaMalloc(&sum, size) ||
      cudaMemcpy(one, first.data(), size, cudaMemcpyHostToDevice) ||
      cudaMemcpy(other, second.data(), size, cudaMemcpyHostToDevice)) {
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  add<<<(count + 255) / 256, 256>>>(one, other, sum, count);
  if (cudaMemcpy(result.data(), sum, size, cudaMemcpyDeviceToHost)) {
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  for (int at = 0; at < count; at++)
    if (result[at] != at % 1000 + 1) { printf("wrong at %d\n", at); return 1; }
  while (count_of_words > 1 && access(words[1], F_OK) == 0) usleep(100000);
  printf("PASSED\n");
  return 0;
}
