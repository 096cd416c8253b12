# Written by gpunode; changes are overwritten.
export CUDA_PATH=/usr/local/cuda
case ":${PATH}:" in
  *:/usr/local/cuda/bin:*) ;;
  *) export PATH="/usr/local/cuda/bin:${PATH}" ;;
esac
# Nsight, where the toolkit has it: as Arch's package names its folders, and as NVIDIA's .run file does. NVIDIA's
# packages put its commands into CUDA's bin.
for gpunode_folder in /usr/local/cuda/nsight_compute /usr/local/cuda/nsight_systems/bin \
  /usr/local/cuda/nsight-compute-* /usr/local/cuda/nsight-systems-*/bin; do
  case ":${PATH}:" in
    *:"${gpunode_folder}":*) ;;
    *) [ ! -d "${gpunode_folder}" ] || export PATH="${PATH}:${gpunode_folder}" ;;
  esac
done
unset gpunode_folder
