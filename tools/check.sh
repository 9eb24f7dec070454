#!/bin/bash
# Format, layers, symbols, sizes, requirements, clang-tidy, cppcheck: check.sh [--quick | tidy | cppcheck]
#
# --quick leaves out the analysers, which take minutes the first time; a name is that one alone. They want build/tidy/build.ninja.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
step()
{
    local name=$1
    shift
    if "$@"; then
        echo "[check] $name: ok"
    else
        echo "[check] $name: FAILED"
        failed=$((failed + 1))
    fi
}

format()
{
    find src -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run --Werror
}

cpp_check()
{
    cppcheck --quiet --project=build/tidy/compile_commands.json --cppcheck-build-dir=build/cppcheck \
        -j "$(nproc)" --enable=warning,portability,performance --inline-suppr --error-exitcode=1 \
        --suppress='*:/usr/*' --suppress=unknownMacro --suppress=missingIncludeSystem --suppress=ctuuninitvar --suppress=internalAstError -i /usr
}

# Threads are started by base/thread.c, which gives them a name and blocks their signals. Tests may start others.
threads()
{
    ! grep -rnE '\b(pthread_create|thrd_create|uv_thread_create(_ex)?)\(' src --include='*.[ch]' --exclude-dir=test --exclude='*_test.c' |
        grep -v '^src/base/thread\.c:'
}

# Processes are started by base/process.c, but for children of libuv loops, boxes, what envd starts, and children that try
# something and report it. Tests may start others.
processes()
{
    ! grep -rnE '^[^*]*\b(((_F|vf|f)ork|posix_spawnp?|popen|system|uv_spawn|sys_clone3)\(|SYS_(clone3?|v?fork)\b)' \
        src --include='*.[ch]' --exclude-dir=test --exclude='*_test.c' |
        grep -vE '^src/(base/(process|test_main)\.c|cli/doctor/cli_doctor_kernel\.c|envd/process/spawn\.c|host/native/)' |
        grep -vE '^src/extra/(interpreter/program/(kernel|zygote)|mcp/gateway/server)\.c'
}

generate()
{
    # Sources that the build makes are analysed like the others; which they are is asked of what is up to date.
    ninja -C build/tidy --quiet build.ninja
    ninja -C build/tidy -t targets all | sed -n 's/: CUSTOM_COMMAND.*//p' | grep '\.[ch]$' | xargs ninja -C build/tidy --quiet
}

what=${1:-all}
if [ "$what" = all ] || [ "$what" = --quick ]; then
    step format format
    step layers tools/check_layers.py
    step symbols tools/check_symbols.py
    step size tools/check_size.py
    step requirements tools/check_requirements.py
    step threads threads
    step processes processes
fi
if [ "$what" != --quick ]; then
    mkdir -p build/cppcheck
    generate || exit 1
fi
if [ "$what" = all ] || [ "$what" = tidy ]; then
    step clang-tidy tools/check_tidy.py
fi
if [ "$what" = all ] || [ "$what" = cppcheck ]; then
    step cppcheck cpp_check
fi
[ "$failed" -eq 0 ]
