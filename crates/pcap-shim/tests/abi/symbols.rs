//! Programs look up libpcap's names when they start, and fail if one is missing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testkit::library;

/// The names of libpcap that nm(1) lists. `None`, with a message: nm is not installed.
fn names(which: &str, file: &Path) -> Option<BTreeSet<String>> {
    let output = match Command::new("nm").args(["-D", which]).arg(file).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no `nm` to list symbols with");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "         U pcap_close", "0000000000023000 T pcap_close@@VERSION"
    let names = text.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
    let are_libpcaps = |name: &&str| ["pcap_", "bpf_", "eproto_"].iter().any(|beginning| name.starts_with(beginning));
    Some(names.filter(are_libpcaps).map(String::from).collect())
}

#[test]
fn every_name_of_libpcaps_is_defined() {
    let Some(libpcap) = crate::libpcap() else {
        eprintln!("skipped: libpcap is not installed");
        return;
    };
    let (Some(theirs), Some(ours)) = (names("--defined-only", libpcap), names("--defined-only", library::pcap()))
    else {
        return;
    };
    assert!(theirs.len() > 80, "{} is no libpcap: {theirs:?}", libpcap.display());
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_name_that_programs_import_is_defined() {
    let programs = [
        "tcpdump",
        "dumpcap",
        "tshark",
        "tcpflow",
        "ngrep",
        "nmap",
        "p0f",
        "softflowd",
        "iftop",
        "nethogs",
        "darkstat",
        "arp-scan",
        "tcpreplay",
        "suricata",
        "zeek",
        "snort",
        "capinfos",
        "nfcapd",
        "ettercap",
        "kismet",
    ];
    let Some(ours) = names("--defined-only", library::pcap()) else { return };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]).collect();
    let mut checked = 0;
    for program in programs {
        let Some(file) = folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file()) else {
            continue;
        };
        let Some(imported) = names("--undefined-only", &file) else { return };
        let missing: Vec<_> = imported.difference(&ours).collect();
        assert!(missing.is_empty(), "{program}: {missing:?}");
        checked += usize::from(!imported.is_empty());
    }
    if checked == 0 {
        eprintln!("skipped: none of these is installed: {}", programs.join(" "));
    }
}
