#!/bin/sh
# SIMULATED nvidia-ctk of gpunode's lab: --version, `cdi generate` and `system create-dev-char-symlinks`.
log() { echo "$(date +%Y-%m-%dT%H:%M:%S) SIMULATED nvidia-ctk: $*" >> /var/log/gpunode-lab.log 2>/dev/null || true; }
# The folder that a file is to lie in.
folder() { case "$1" in */*) [ -d "${1%/*}" ] || mkdir -p "${1%/*}" ;; esac; }

# What a specification of this version makes the runtime run: the hooks that this version's nvidia-cdi-hook has.
hooks() {
    case '@VERSION@' in
        1.1[0-6].*|1.17.[0-4]) names='create-symlinks update-ldcache' ;;
        1.17.*) names='create-symlinks enable-cuda-compat update-ldcache' ;;
        1.18.*|1.19.*) names='create-symlinks enable-cuda-compat update-ldcache disable-device-node-modification' ;;
        *)
            names='create-symlinks enable-cuda-compat update-ldcache disable-device-node-modification'
            names="$names update-application-profile" ;;
    esac
    for name in $names; do
        echo "  - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, $name]}"
    done
}

# Where a device is on the node, where that is not the path in a container.
host() { [ -z "$devices" ] || printf ', hostPath: %s' "$devices$1"; }

cdi_generate() {
    case '@VERSION@' in
        1.1[0-7].*) output= ;;
        *) output=${NVIDIA_CTK_CDI_OUTPUT_FILE_PATH:-} ;;
    esac
    # The driver's folder, from 1.18 on by config.toml, too; and that of /dev, which is the driver's if not said.
    root=; devices=-
    case '@VERSION@' in 1.1[0-7].*) ;; *)
        root=$(sed -n 's/^root = "\(.*\)"/\1/p' /etc/nvidia-container-runtime/config.toml 2>/dev/null) ;;
    esac
    while [ "$#" -gt 0 ]; do
        case "$1" in
            --output=*) output=${1#*=} ;;
            --output) output=$2; shift ;;
            --driver-root=*) root=${1#*=}; [ "$root" != / ] || root= ;;
            --dev-root=*) devices=${1#*=}; [ "$devices" != / ] || devices= ;;
            *) echo "nvidia-ctk: SIMULATED, does not know '$1' of cdi generate" >&2; exit 1 ;;
        esac
        shift
    done
    { read -r loaded < /sys/module/nvidia/version; } 2>/dev/null || {
        echo "level=error msg=\"failed to generate CDI spec: failed to initialize NVML: Driver Not Loaded\"" >&2; exit 1; }
    [ "$devices" != - ] || devices=$root
    library=$(readlink -f "$root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" ||
        readlink -f "$root/usr/lib64/libnvidia-ml.so.1")
    case "$library" in
        *".so.$loaded") ;;
        *) echo "level=error msg=\"failed to initialize NVML: Driver/library version mismatch\"" >&2; exit 1 ;;
    esac
    log "cdi generate of driver $loaded to ${output:-stdout}"
    [ -z "$output" ] || { folder "$output"; exec > "$output"; }
    echo '---'
    echo 'cdiVersion: 0.5.0'
    echo 'kind: nvidia.com/gpu'
    echo 'devices:'
    for device in /dev/nvidia[0-9]*; do
        echo "  - name: \"${device#/dev/nvidia}\""
        echo "    containerEdits: {deviceNodes: [{path: $device$(host "$device")}]}"
    done
    echo '  - name: all'
    echo '    containerEdits:'
    echo '      deviceNodes:'
    for device in /dev/nvidia[0-9]*; do
        echo "        - path: $device"
        [ -z "$devices" ] || echo "          hostPath: $devices$device"
    done
    echo 'containerEdits:'
    echo "  deviceNodes: [{path: /dev/nvidiactl$(host /dev/nvidiactl)}]"
    echo '  env: [NVIDIA_VISIBLE_DEVICES=void]'
    echo '  hooks:'
    hooks
    echo '  mounts:'
    echo "    - hostPath: $root/usr/lib/x86_64-linux-gnu/libcuda.so.$loaded"
    echo "      containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.$loaded"
    echo '      options: [ro, nosuid, nodev, rbind, rprivate]'
}

case "$1 $2" in
    --version*|-v*)
        echo 'NVIDIA Container Toolkit CLI version @VERSION@'
        echo 'commit: simulated' ;;
    "cdi generate")
        shift 2; cdi_generate "$@" ;;
    "system create-dev-char-symlinks")
        folder /dev/char/
        # One program for all devices, and none for a link that is there.
        stat -c '%t %T %n' /dev/nvidia* 2>/dev/null | while read -r major minor device; do
            link="/dev/char/$((0x$major)):$((0x$minor))"
            [ ! -c "$device" ] || [ "$link" -ef "$device" ] || ln -sfn "$device" "$link"
        done
        log "$*" ;;
    *)
        echo "nvidia-ctk: SIMULATED, does not know '$*'" >&2; exit 1 ;;
esac
