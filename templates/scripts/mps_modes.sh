# Functions: the GPUs' compute modes. compute_modes prints INDEX, MODE of each; set_mode INDEX MODE.
# nvidia-smi warns in lines that begin so, and has done what it was told where it exits 14 (a corrupted infoROM).

compute_modes() {
  timeout -k 5 30 nvidia-smi --query-gpu=index,compute_mode --format=csv,noheader 2>/dev/null | sed '/^WARNING/d'
}
set_mode() {
  code=0; timeout -k 5 30 nvidia-smi -i "$1" -c "$2" || code=$?
  [ "$code" -eq 0 ] || [ "$code" -eq 14 ]
}
