# The kernel of Bash: an interactive shell whose input is the interpreter's socket, so that an interrupt ends a cell and not
# the shell. Cells come as one line each (language.c); before each prompt the shell says that the last one has ended.
PS1= PS2= HISTFILE=
set +o history
shopt -u checkwinsize
declare -A __quicksand_old=()
__quicksand_new=()
__quicksand_kind=k

__quicksand_global()
{
    export "$1=$2"
}

# For one cell: what it was before is put back.
__quicksand_variable()
{
    if [[ -v $1 ]]; then __quicksand_old[$1]=${!1}; else __quicksand_new+=("$1"); fi
    export "$1=$2"
}

__quicksand_prompt()
{
    local name
    for name in "${!__quicksand_old[@]}"; do export "$name=${__quicksand_old[$name]}"; done
    for name in "${__quicksand_new[@]}"; do unset "$name"; done
    __quicksand_old=() __quicksand_new=()
    printf '%s 0\n' "$__quicksand_kind" >&0
    __quicksand_kind=d
}
PROMPT_COMMAND=__quicksand_prompt
