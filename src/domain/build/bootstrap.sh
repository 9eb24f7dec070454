# Makes a minimal Debian: essential packages, apt, certificates. Run by bash in two boxes (build_bootstrap.c).
#
#   fetch RELEASE MIRROR SECURITY KEYRING SECONDS   in a box of the base: fetches lists and packages by apt, which checks them by
#                                                   the keyring, and fills /run/layer with what the packages hold
#   install                                         in a box whose root that is: installs them as packages, with the release's own
#                                                   dpkg and a real /dev and /proc, and fills /run/layer with the result
#
# What apt and dpkg say goes to stdout. The last line on stderr says why it failed.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true
layer=/run/layer
archives=var/cache/apt/archives

fail()
{
    echo "$*" >&2
    exit 1
}

# The suites of a release, each with its archive. What never becomes a release has one only.
suites()
{
    echo "$mirror $release"
    case $release in
    sid | unstable | experimental) return ;;
    esac
    echo "$mirror $release-updates"
    [ -z "$security" ] || echo "$security $release-security"
}

# sources KEYRING: as apt reads them
sources()
{
    suites | while read -r url suite; do
        echo "deb [signed-by=$1] $url $suite main"
    done
}

# apt with a state of its own: no package is installed, and only these archives are known.
prepare_apt()
{
    work=$(mktemp -d /var/tmp/bootstrap-XXXXXX)
    mkdir -p "$work"/{etc/apt.conf.d,etc/preferences.d,etc/trusted.gpg.d,lists/partial} "$layer/$archives/partial"
    : >"$work/status"
    cat >"$work/apt.conf" <<END_OF_CONF
Dir::Etc "$work/etc";
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$layer/$archives";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "$seconds";
Acquire::https::Timeout "$seconds";
END_OF_CONF
    export APT_CONFIG=$work/apt.conf
}

# run_apt ARGUMENT...: what it says is shown, and kept for why_not.
run_apt()
{
    apt-get -q -o Dpkg::Use-Pty=0 "$@" 2>&1 | tee "$work/said"
}

# Which of the reasons that people can do something about it was.
why_not()
{
    local said
    said=$(grep -E '^(E|W|Err|  )' "$work/said" || true)
    case $said in
    *"couldn't be verified"* | *"is not signed"* | *SIG* | *"isn't valid"* | *NO_PUBKEY* | *NOSPLIT*)
        echo "it is not signed by a key of the keyring (--package-keyring)" ;;
    *"no longer valid"* | *"not valid yet"* | *expired*)
        echo "it is of another time; is the mirror kept up to date?" ;;
    *"404 "* | *"403 "* | *"does not have a Release file"*)
        echo "it is not there; is that a release's name (bookworm, sid), and the mirror one of Debian?" ;;
    *"Hash Sum mismatch"* | *"unexpected size"*)
        echo "it is not what the signed list says; try again later, or another mirror" ;;
    *"Unable to correct problems"* | *"Unable to locate"* | *"unmet dependencies"* | *"no installation candidate"*)
        echo "some of a minimal system are missing; the log says which" ;;
    *)
        echo "no answer; sandboxes must reach it, at a public address" ;;
    esac
}

# A mirror may answer for one suite with the signed list of another.
check_suite()
{
    local list
    for list in "$work"/lists/*_dists_"$1"_InRelease "$work"/lists/*_dists_"$1"_Release; do
        [ ! -e "$list" ] || grep -qxE "(Codename|Suite): $1" "$list" || return 1
    done
}

# One after the other, so that the first that does not answer is the last that is waited for.
fetch_lists()
{
    local url suite what
    while read -r url suite; do
        echo "list of $suite from $url"
        what="fetch the list of $suite from $url"
        echo "deb [signed-by=$keyring] $url $suite main" >>"$work/etc/sources.list"
        run_apt --error-on=any update || fail "$what: $(why_not)"
        check_suite "$suite" || fail "$what: it is that of another release"
    done < <(suites)
}

fetch_packages()
{
    local wanted=('?essential' apt ca-certificates)
    # Instead of the program that moves files of an old system, which is the other way to meet the same dependency.
    if apt-cache -q show usr-is-merged >/dev/null 2>&1; then
        wanted+=(usr-is-merged)
    fi
    run_apt --yes --download-only install "${wanted[@]}" || fail "fetch the packages from $mirror: $(why_not)"
    rm -rf "$layer/$archives/partial" "$layer/$archives/lock"
}

# The places that packages expect: programs and libraries are beneath /usr.
make_places()
{
    local name
    mkdir -p "$layer/usr"
    for name in bin sbin lib $([ "$(dpkg --print-architecture)" != amd64 ] || echo lib64); do
        mkdir -p "$layer/usr/$name"
        ln -s "usr/$name" "$layer/$name"
    done
}

extract_packages()
{
    local package count=0
    make_places
    for package in "$layer/$archives"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -C "$layer" --keep-directory-symlink -xpf -
        count=$((count + 1))
    done
    echo "unpacked $count packages"
}

# Enough to run in: accounts, and a dpkg that knows of nothing.
make_bootable()
{
    cd "$layer"
    mkdir -p dev proc sys run tmp root home var/tmp etc/apt var/lib/dpkg/{info,updates}
    : >var/lib/dpkg/status
    cp usr/share/base-passwd/passwd.master etc/passwd
    cp usr/share/base-passwd/group.master etc/group
    if [ "$keyring" = /usr/share/keyrings/debian-archive-keyring.gpg ]; then
        sources "$keyring"
    else
        install -D -m 0644 "$keyring" "etc/apt/keyrings/package-mirror.${keyring##*.}"
        sources "/etc/apt/keyrings/package-mirror.${keyring##*.}"
    fi >etc/apt/sources.list
}

fetch()
{
    release=$1 mirror=$2 security=$3 keyring=$4 seconds=$5
    [ -e "$keyring" ] || fail "the base template has no $keyring; name one by --package-keyring"
    prepare_apt
    fetch_lists
    fetch_packages
    extract_packages
    make_bootable
}

# put MODE PATH, text from stdin
put()
{
    mkdir -p "$(dirname "$2")"
    cat >"$2"
    chmod "$1" "$2"
}

# As in the base: no init system runs inside, and a template that was not finished is thrown away.
configure()
{
    put 0755 /usr/sbin/policy-rc.d <<'END_OF_FILE'
#!/bin/sh
exit 101
END_OF_FILE
    put 0644 /etc/apt/apt.conf.d/90sandbox <<'END_OF_FILE'
Acquire::Languages "none";
APT::Sandbox::User "root";
Dpkg::Use-Pty "0";
END_OF_FILE
    put 0644 /etc/dpkg/dpkg.cfg.d/90sandbox <<'END_OF_FILE'
force-unsafe-io
END_OF_FILE
}

# What must not be the same in all sandboxes, and what is only weight.
scrub()
{
    find /var/log -type f -delete
    rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/cache/ldconfig/aux-cache
    mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial
    : >/etc/machine-id
    rm -f /etc/.pwd.lock /etc/*-
}

# The whole root but for what is mounted in each box.
copy_root()
{
    local name
    for name in /* /.[!.]*; do
        case $name in
        /dev | /proc | /sys | /run | /tmp | "/.[!.]*") ;;
        *) cp -a "$name" "$layer/" ;;
        esac
    done
    rm -f "$layer"/etc/{resolv.conf,hostname,hosts}
    : >"$layer/etc/resolv.conf"
}

# What it says but for the order of packages, which it is told not to mind, and what is said of each several times.
run_dpkg()
{
    dpkg "$@" 2>&1 | sed -u '/^Selecting previously/d; /^Preparing to unpack/d; /^(Reading database/d; /^dpkg: regarding/d
        / pre-depends on /d; /^  .* is \(not installed\|unpacked\|not configured\|to be\|installed\)/d; /^dpkg: warning: ignoring pre-dep/d; /^$/d'
}

install_packages()
{
    configure
    # By their names some come before what they need to be unpacked, which is there already.
    run_dpkg --force-depends --install "/$archives"/*.deb || fail "install the packages: dpkg did not finish; the log says why"
    [ -z "$(dpkg --audit)" ] || fail "install the packages: $(dpkg --audit | head -n 1)"
    scrub
    copy_root
}

case $1 in
fetch) fetch "${@:2}" ;;
install) install_packages ;;
esac
