#!/bin/sh
# Starts the kernel of Java, in a JVM of its own. "java.sh build" makes it: a jar, and an archive of all classes that it loads for a
# first cell, which the JVM maps instead of loading them one by one.
set -e
here=${0%/*}
start()
{
    exec java "$1=$here/java.jsa" -Xlog:disable -Xlog:all=error:stderr -XX:+UseSerialGC -Dfile.encoding=UTF-8 --add-opens=java.base/java.io=ALL-UNNAMED \
        -cp "$here/java.jar" JavaKernel
}
[ "${1:-}" = build ] || start -XX:SharedArchiveFile
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
javac -XDignore.symbol.file=true -d "$made/classes" "$here/JavaKernel.java"
jar --create --file "$here/java.jar" -C "$made/classes" .
# A file instead of a socket: what the kernel says first takes the place of the first four bytes.
printf 'k 0\nc 26\nSystem.out.println(1);\n1+1' >"$made/cell"
(start -XX:ArchiveClassesAtExit) 3<>"$made/cell"
