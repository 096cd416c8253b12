# Written by gpunode; changes are overwritten.
export CUDA_PATH=/usr/local/cuda
case ":${PATH}:" in
  *:/usr/local/cuda/bin:*) ;;
  *) export PATH="/usr/local/cuda/bin:${PATH}" ;;
esac
