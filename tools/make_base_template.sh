#!/bin/bash
# Makes the root filesystem of the base template: make_base_template.sh OUTDIR
#
# The tree appears as OUTDIR/rootfs, complete, or not at all: it grows as OUTDIR/rootfs.partial and is
# renamed at the end; whoever called us moves OUTDIR into place. Packages come from the machine's own apt
# sources (deb822 and one-line files alike: apt lists them for us), so that a mirror configured on the
# host is used here too. QUICKSAND_TEMPLATE_SOURCES=FILE replaces them, QUICKSAND_TEMPLATE_SUITE names
# another Debian release. Files carry their real ids (root 0, user 1000): the engine's idmapped mount
# moves them into each sandbox's range.
#
# Lines for people go to stdout as "[template] NN % what"; everything else to OUTDIR/build.log.
set -euo pipefail

suite=${QUICKSAND_TEMPLATE_SUITE:-bookworm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

packages=(
    # a shell people expect
    bash bash-completion procps psmisc less vim-tiny nano file jq tree xz-utils zip unzip bzip2 zstd
    ncurses-bin ncurses-term tmux sudo
    # languages and their package managers
    python3 python3-pip python3-venv python3-dev python-is-python3 nodejs npm build-essential pkg-config
    # fetching and talking
    ca-certificates curl wget git openssh-client openssh-server rsync socat gnupg
    iproute2 iputils-ping net-tools netcat-openbsd
)

die()
{
    echo "[template] failed: $*" >&2
    exit 1
}

say()
{
    printf '[template] %3d %% %s\n' "$1" "$2"
}

[ $# -eq 1 ] || die "usage: make_base_template.sh OUTDIR"
[ "$(id -u)" -eq 0 ] || die "needs root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
mkdir -p -- "$1"
out=$(cd -- "$1" && pwd)
root=$out/rootfs.partial
log=$out/build.log

# One line for each Debian archive that the host uses for this suite. Local media and credentials stay out.
apt_sources()
{
    if [ -n "${QUICKSAND_TEMPLATE_SOURCES:-}" ]; then
        cat -- "$QUICKSAND_TEMPLATE_SOURCES"
        return
    fi
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$suite" -v key="$([ -e "$keyring" ] && echo "[signed-by=$keyring] ")" '
            $1 !~ /^(https?|mirror)/ || $3 != "main" { next }
            $2 != suite && $2 != suite "-updates" && $2 != suite "-security" { next }
            { sub(/\/\/[^\/@]*@/, "//", $1); sub(/\/$/, "", $1) }
            !seen[$1 $2]++ { print "deb " key $1 " " $2 " main" }'
}

# Turns apt's and dpkg's own output into per cent. apt says how many packages it will install before it
# fetches; each is then seen three times: fetched, unpacked, set up.
progress()
{
    awk '
        function show(percent, text) {
            if (percent > last) {
                last = percent
                printf "[template] %3d %% %s\n", percent, text
                fflush()
            }
        }
        BEGIN { last = 1; want = 420 }
        / newly installed, / { for (i = 1; i < NF; i++) if ($(i + 1) == "newly") total += $i; if (total > want) want = total }
        /^Get:/ { got++; text = "downloading " $5 }
        /^Unpacking / { unpacked++; text = "unpacking " $2 }
        /^Setting up / { ready++; text = "installing " $3 " " $4; sub(/ \(.*/, "", text) }
        text != "" {
            percent = int(2 + 88 * (got + unpacked + ready) / (3 * want))
            if (percent > 90)
                percent = 90
            if (percent >= last + 4)
                show(percent, text)
            text = ""
        }'
}

bootstrap()
{
    local list
    list=$(IFS=,; echo "${packages[*]}")
    # unsafe-io: a tree that did not finish is thrown away, so nothing in it needs fsync. A mount namespace of its own: when it is
    # killed, the host's /dev and /proc, which it mounts there, are not below what is thrown away.
    DEBIAN_FRONTEND=noninteractive unshare --mount mmdebstrap --mode=root --variant=minbase --verbose \
        --include="$list" \
        --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='Acquire::Retries "5"' \
        --aptopt='Acquire::http::Timeout "60"' \
        --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --skip=cleanup/apt/lists \
        "$suite" "$root" "$out/sources.list" 2>&1 | tee -a "$log" | progress
}

# A file of the tree: put MODE PATH, text from stdin.
put()
{
    rm -f -- "$root/$2"
    mkdir -p -- "$(dirname -- "$root/$2")"
    cat >"$root/$2"
    chmod "$1" "$root/$2"
}

configure_user()
{
    chroot "$root" groupadd -g 1000 user
    chroot "$root" useradd -m -u 1000 -g 1000 -G sudo -s /bin/bash user
    chroot "$root" passwd -q -d user
    put 0440 etc/sudoers.d/user <<'END'
Defaults !fqdn
user ALL=(ALL:ALL) NOPASSWD: ALL
END
    chown 1000:1000 "$root"/home/user/.bashrc "$root"/home/user/.profile
    chmod 0644 "$root"/home/user/.bashrc "$root"/home/user/.profile
    chmod 0755 "$root"/home/user
    install -d -m 0777 "$root/code"
    chown 1000:1000 "$root/code"
}

configure_system()
{
    echo e2b.local | put 0644 etc/hostname
    put 0644 etc/hosts <<'END'
127.0.0.1 localhost e2b.local
::1 localhost ip6-localhost ip6-loopback
END
    # The engine writes the real name server at start.
    put 0644 etc/resolv.conf </dev/null
    # No init system runs inside: packages must not try to start what they bring.
    put 0755 usr/sbin/policy-rc.d <<'END'
#!/bin/sh
exit 101
END
    # mmdebstrap leaves the same list under another name.
    rm -f "$root"/etc/apt/sources.list.d/*sources.list
    put 0644 etc/apt/sources.list <"$out/sources.list"
    rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap
    # Packages make links in there although the manual pages themselves are left out.
    mkdir -p "$root"/usr/share/man/man{1..8}
    # As in the archives' own images: small indexes, no translations, and no second user for downloads,
    # which a sandbox's own user limits would only get in the way of.
    put 0644 etc/apt/apt.conf.d/90sandbox <<'END'
Acquire::Languages "none";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dpkg::Use-Pty "0";
END
    put 0644 etc/dpkg/dpkg.cfg.d/90sandbox <<'END'
force-unsafe-io
END
    # The whole machine is the project's own: pip may install into it.
    rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
    put 0644 etc/pip.conf <<'END'
[global]
disable-pip-version-check = true
root-user-action = ignore
END
    put 0644 etc/npmrc <<'END'
fund=false
audit=false
update-notifier=false
END
    put 0644 etc/gitconfig <<'END'
[init]
	defaultBranch = main
[safe]
	directory = *
[advice]
	detachedHead = false
END
    put 0644 etc/profile.d/sandbox.sh <<'END'
export LANG=${LANG:-C.UTF-8} LC_ALL=${LC_ALL:-C.UTF-8}
# Without it `ss` asks by a kind of socket that sandboxes do not have, complains, and reads /proc then.
export PROC_ROOT=/proc
END
}

# The server that runs agents in sandboxes, for sessions: one static program, from npm, by its checksum. A template without
# it is good for everything else, so that a registry out of reach is told and does not stop us.
sandbox_agent=0.4.2
add_sandbox_agent()
{
    local arch sum folder
    case $(uname -m) in
    x86_64) arch=x64 sum=47ce5b254a57bb6c023bb0b086ecbfb217811122c6cb4b0a870a697f04494320 ;;
    aarch64) arch=arm64 sum=10428b086ebd2a494018ef1fd31ee9bbe657c3866ed4c9b2fca1c81df6b14d2f ;;
    *) return 1 ;;
    esac
    folder=$(mktemp -d "$out/npm-XXXXXX")
    (
        cd -- "$folder" && npm pack --silent "@sandbox-agent/cli-linux-$arch@$sandbox_agent" &&
            echo "$sum  sandbox-agent-cli-linux-$arch-$sandbox_agent.tgz" | sha256sum --check --quiet &&
            tar -xzf *.tgz package/bin/sandbox-agent &&
            install -m 0755 package/bin/sandbox-agent "$root/usr/local/bin/sandbox-agent"
    ) >>"$log" 2>&1 || { rm -rf -- "$folder"; return 1; }
    rm -rf -- "$folder"
}

# What would be the same in every sandbox but must not be, and what is only weight.
scrub()
{
    : >"$root/etc/machine-id"
    rm -f "$root"/var/lib/dbus/machine-id "$root"/etc/ssh/ssh_host_* "$root"/var/lib/systemd/random-seed
    rm -f "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/log/apt "$root"/var/log/*.log "$root"/tmp/* "$root"/var/tmp/*
    rm -f "$root"/var/cache/ldconfig/aux-cache "$root"/etc/.pwd.lock "$root"/etc/*-
    rm -rf "$root"/dev/* "$root"/run/*
    mkdir -p "$root"/run/lock "$root"/dev/pts "$root"/dev/shm "$root"/var/lib/apt/lists/partial
    chmod 1777 "$root"/run/lock "$root"/tmp "$root"/var/tmp
}

check()
{
    local tool
    for tool in bash python python3 pip node npm npx git curl wget sudo ps ip ping tput gcc make jq socat; do
        chroot "$root" /bin/sh -c "command -v $tool" >/dev/null || die "the tree has no $tool"
    done
    [ "$(stat -c %u:%g "$root/home/user/.bashrc")" = 1000:1000 ] || die "/home/user has wrong owners"
    [ "$(stat -c %u:%a "$root/usr/bin/sudo")" = 0:4755 ] || die "sudo is not setuid root"
}

started=$SECONDS
rm -rf --one-file-system -- "$root"
: >"$log"
apt_sources >"$out/sources.list"
grep -q "^deb .* $suite main" "$out/sources.list" ||
    die "this machine's apt has no source for Debian $suite; set QUICKSAND_TEMPLATE_SOURCES to a sources.list file"
say 1 "Debian $suite, ${#packages[@]} packages and what they need"
if ! bootstrap; then
    tail -n 25 "$log" >&2
    rm -rf --one-file-system -- "$root"
    die "mmdebstrap did not finish; all of its output is in $log"
fi
say 92 "user, apt, pip and git settings"
configure_user >>"$log" 2>&1
configure_system
say 94 "sandbox-agent $sandbox_agent"
add_sandbox_agent ||
    say 94 "sandbox-agent could not be fetched from npm: sessions need the setting sandbox_agent.program ($log says why)"
say 95 "cleaning"
scrub
check
say 98 "$(du -sm "$root" | cut -f1) MB on disk"
rm -rf -- "$out/rootfs"
mv -T -- "$root" "$out/rootfs"
say 100 "done in $((SECONDS - started)) s"
