# Prints package=NAME VERSION of each installed package of a container runtime. Takes RUNTIMES, their names; asks for
# the packages of the node (facts/packages.py).

set -f; IFS=$NL
for line in $PACKAGES; do
  package=${line#* }
  case " $RUNTIMES " in *" ${package%% *} "*) echo "package=$package";; esac
done
unset IFS; set +f
