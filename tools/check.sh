#!/bin/bash
# Format, layers, sizes, requirements, clang-tidy, cppcheck: check.sh [--quick | tidy | cppcheck]
#
# --quick leaves out the analysers, which take minutes; a name is that one alone. They want build/tidy/build.ninja.
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

tidy()
{
    # Not the sources that are compiled in from Debian's node-llhttp.
    run-clang-tidy -quiet -p build/tidy "^$PWD/src/.*" >build/tidy.log 2>&1 && return
    sed 's/\x1b\[[0-9;]*m//g; s#^.*/build/tidy/##; s#^\.\./\.\./##; s#^'"$PWD/##" build/tidy.log | grep -E '^src/.*(warning|error):' | sort -u >build/tidy.found
    head -n 60 build/tidy.found
    echo "$(wc -l <build/tidy.found) findings, all of them in build/tidy.found"
    return 1
}

cpp_check()
{
    cppcheck --quiet --project=build/tidy/compile_commands.json --cppcheck-build-dir=build/cppcheck \
        -j "$(nproc)" --enable=warning,portability,performance --inline-suppr --error-exitcode=1 \
        --suppress='*:/usr/*' --suppress=unknownMacro --suppress=missingIncludeSystem --suppress=ctuuninitvar --suppress=internalAstError -i /usr
}

generate()
{
    # Sources that the build makes are analysed like the others.
    ninja -C build/tidy -t targets all | sed -n 's/: CUSTOM_COMMAND.*//p' | grep -v "^meson-internal" | xargs ninja -C build/tidy --quiet
}

what=${1:-all}
if [ "$what" = all ] || [ "$what" = --quick ]; then
    step format format
    step layers tools/check_layers.py
    step size tools/check_size.py
    step requirements tools/check_requirements.py
fi
if [ "$what" != --quick ]; then
    mkdir -p build/cppcheck
    generate || exit 1
fi
if [ "$what" = all ] || [ "$what" = tidy ]; then
    step clang-tidy tidy
fi
if [ "$what" = all ] || [ "$what" = cppcheck ]; then
    step cppcheck cpp_check
fi
[ "$failed" -eq 0 ]
