// A CUDA client that adds two vectors, checks the sum, and stays for three seconds, so that it is seen by whom it uses.
#include <cstdio>
#include <unistd.h>

__global__ void add(const float *one, const float *other, float *sum, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) sum[at] = one[at] + other[at];
}

int main() {
  const int count = 1 << 20;
  float *one, *other, *sum;
  if (cudaMallocManaged(&one, count * sizeof(float)) || cudaMallocManaged(&other, count * sizeof(float)) ||
      cudaMallocManaged(&sum, count * sizeof(float))) {
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  for (int at = 0; at < count; at++) { one[at] = at % 1000; other[at] = 1; }
  add<<<(count + 255) / 256, 256>>>(one, other, sum, count);
  if (cudaDeviceSynchronize()) {
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  for (int at = 0; at < count; at++)
    if (sum[at] != at % 1000 + 1) { printf("wrong at %d\n", at); return 1; }
  sleep(3);
  printf("PASSED\n");
  return 0;
}
