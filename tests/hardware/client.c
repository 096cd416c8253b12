/* A CUDA client for a machine without nvcc: it loads libcuda.so.1 itself, adds two vectors by a kernel that is PTX text
 * (the driver compiles it), checks the sum, and prints PASSED. With a file's name as its argument it stays while that
 * file exists, so that what it uses can be looked at. Its memory is plain device memory: in virtual machines managed
 * memory has hung GPUs. It ends with 1 where CUDA fails, and with 2 where there is no libcuda. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int Result;
typedef unsigned long long Pointer;

/* sm_50 is the oldest GPU that CUDA 12 knows; newer drivers compile PTX of any older version. */
static const char kernel[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry add(.param .u64 one, .param .u64 other, .param .u64 sum, .param .u32 count)\n{\n"
    ".reg .pred %outside;\n.reg .b32 %block, %size, %thread, %at, %count;\n.reg .b64 %offset, %a, %b, %c;\n"
    ".reg .f32 %x, %y, %z;\n"
    "ld.param.u64 %a, [one];\nld.param.u64 %b, [other];\nld.param.u64 %c, [sum];\nld.param.u32 %count, [count];\n"
    "mov.u32 %block, %ctaid.x;\nmov.u32 %size, %ntid.x;\nmov.u32 %thread, %tid.x;\n"
    "mad.lo.s32 %at, %block, %size, %thread;\nsetp.ge.u32 %outside, %at, %count;\n@%outside bra done;\n"
    "cvta.to.global.u64 %a, %a;\ncvta.to.global.u64 %b, %b;\ncvta.to.global.u64 %c, %c;\n"
    "mul.wide.u32 %offset, %at, 4;\nadd.s64 %a, %a, %offset;\nadd.s64 %b, %b, %offset;\nadd.s64 %c, %c, %offset;\n"
    "ld.global.f32 %x, [%a];\nld.global.f32 %y, [%b];\nadd.f32 %z, %x, %y;\nst.global.f32 [%c], %z;\n"
    "done:\nret;\n}\n";

static void *library;

static void *function(const char *name) {
  void *found = dlsym(library, name);
  if (!found) { printf("libcuda.so.1 has no %s\n", name); exit(2); }
  return found;
}

static void check(Result result, const char *what) {
  if (!result) return;
  const char *text = NULL;
  Result (*name)(Result, const char **) = (Result (*)(Result, const char **))function("cuGetErrorName");
  name(result, &text);
  printf("%s: %s (%d)\n", what, text ? text : "unknown error", result);
  exit(1);
}

#define CALL(name, types, ...) check(((Result (*) types)function(#name))(__VA_ARGS__), #name)

static void add(Pointer one, Pointer other, Pointer sum, unsigned count) {
  void *module, *entry, *arguments[] = {&one, &other, &sum, &count};
  CALL(cuModuleLoadData, (void **, const void *), &module, kernel);
  CALL(cuModuleGetFunction, (void **, void *, const char *), &entry, module, "add");
  CALL(cuLaunchKernel,
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
       entry, (count + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
  CALL(cuCtxSynchronize, (void));
}

int main(int count_of_words, char **words) {
  enum { count = 1 << 20 };
  const size_t size = count * sizeof(float);
  float *numbers = malloc(size), *ones = malloc(size), *result = malloc(size);
  Pointer memory[3];
  void *context;
  int device;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) { printf("%s\n", dlerror()); return 2; }
  for (int at = 0; at < count; at++) { numbers[at] = at % 1000; ones[at] = 1; }
  CALL(cuInit, (unsigned), 0);
  CALL(cuDeviceGet, (int *, int), &device, 0);
  CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
  CALL(cuCtxSetCurrent, (void *), context);
  for (int each = 0; each < 3; each++) CALL(cuMemAlloc_v2, (Pointer *, size_t), &memory[each], size);
  CALL(cuMemcpyHtoD_v2, (Pointer, const void *, size_t), memory[0], numbers, size);
  CALL(cuMemcpyHtoD_v2, (Pointer, const void *, size_t), memory[1], ones, size);
  add(memory[0], memory[1], memory[2], count);
  CALL(cuMemcpyDtoH_v2, (void *, Pointer, size_t), result, memory[2], size);
  for (int at = 0; at < count; at++)
    if (result[at] != at % 1000 + 1) { printf("wrong at %d\n", at); return 1; }
  while (count_of_words > 1 && access(words[1], F_OK) == 0) usleep(100000);
  printf("PASSED\n");
  return 0;
}
