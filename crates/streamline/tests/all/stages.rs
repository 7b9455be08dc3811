//! A request on several threads writes the same bytes as on one, and counts the same.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use streamline::{Output, Session, StopFlag};
use testkit::chain::Captured;

/// The bundled captures, and the shared ones if they are there.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let folders = [root.join("captures"), shared.join("data/captures")];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<PathBuf> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != "README.md"));
    files.sort();
    files
}

/// The results of a run: standard output, files, how it ended, and each filter's counters.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    text: String,
    files: BTreeMap<String, Vec<u8>>,
    end: String,
    counted: Vec<String>,
}

/// Runs a request; `OUT` in it stands for a fresh folder.
fn run(request: &str) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let request = request.replace("OUT", folder.path().join("out").to_str().unwrap());
    let captured = Captured::default();
    let session = Session::with_output(Output::new(Box::new(captured.clone()), false));
    let mut job = match session.prepare(&request, &BTreeMap::new()) {
        Ok(job) => job,
        // An unreadable file is refused in the same way.
        Err(error) => {
            let (end, (text, files, counted)) = (error.to_string(), Default::default());
            return Left { text, files, end, counted };
        }
    };
    let (end, report) = job.run_to_end(&StopFlag::new(), &mut |_| {});
    report.check().unwrap();
    assert_eq!(report.traffic.faults, 0, "{request}: blocks without their bytes");
    let files = std::fs::read_dir(folder.path().join("out")).into_iter().flatten().map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    });
    let counted = report.nodes.iter().map(|node| {
        let counters = &node.counters;
        let mut tallies: Vec<_> =
            counters.drops.iter().chain(counters.events.iter()).chain(counters.unread.iter()).collect();
        tallies.sort_unstable();
        // How many blocks `http` makes of decoded content depends on how many blocks come in together.
        let blocks = if request.contains("http") { 0 } else { counters.blocks_in + counters.blocks_out() };
        format!("{} {blocks} {tallies:?}", node.label.split(' ').next().unwrap_or_default())
    });
    Left {
        text: captured.text(),
        files: files.collect(),
        end: format!("{:?}", end.map(|finished| finished.end).map_err(|error| error.to_string())),
        counted: counted.collect(),
    }
}

/// Checks a chain on all bundled captures, and on one in `one_in` of the others.
fn check(chain: &str, one_in: usize) {
    let captures = captures();
    assert!(captures.len() >= 5);
    let mut wrong = Vec::new();
    for capture in captures.into_iter().enumerate().filter(|(at, _)| *at < 5 || at % one_in == 0).map(|(_, path)| path)
    {
        let run = |workers: usize| run(&format!("set workers={workers}; pcap \"{}\" | {chain}", capture.display()));
        let one = run(1);
        for workers in [2, 4] {
            let several = run(workers);
            if several != one {
                let differs = [
                    ("text", several.text != one.text),
                    ("files", several.files != one.files),
                    ("end", several.end != one.end),
                ];
                let (several, one) = (several.counted, &one.counted);
                wrong.push(format!("{}, {workers} workers: {differs:?}\n{several:?}\n{one:?}", capture.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ, such as\n{:.3000}", wrong.len(), wrong[0]);
}

#[test]
fn streams_are_the_same_files() {
    check("tcp | files OUT", 1);
}

#[test]
fn bodies_are_the_same_files() {
    check("http | files OUT hash=no", 4);
}

#[test]
fn messages_are_the_same_lines() {
    check("http | json", 1);
}

#[test]
fn records_of_two_ways_are_the_same_lines() {
    check("dns | json", 1);
}

#[test]
fn hellos_are_the_same_lines() {
    check("tls | json", 4);
}

#[test]
fn datagrams_are_the_same_files() {
    check("udp | files OUT hash=no", 4);
}

#[test]
fn spread_filters_change_nothing() {
    let requests = [
        "port 80 N | inspect",
        "tcp | http N | files OUT hash=no",
        "tcp N | http N | json",
        "decap N | packets | fields frame.len tunnel",
        "decap N | tcp N | files OUT hash=no",
        "bpf ip N | decap N | udp N | dns | json",
        "tcp | match \"[a-m]+\" N | files OUT",
        "udp N | dns | json",
        "bpf \"tcp or udp\" N | { tcp | tls + udp | dns } | json",
        "tcp | http | sequence | drop N",
    ];
    let captures = captures();
    assert!(captures.len() >= 5);
    let has_tunnels = |path: &Path| ["frag", "gtp", "vxlan"].iter().any(|sort| path.to_string_lossy().contains(sort));
    let is_tried = |(at, path): &(usize, &PathBuf)| *at < 5 || at % 20 == 0 || has_tunnels(path);
    for capture in captures.iter().enumerate().filter(is_tried).map(|(_, path)| path) {
        for request in requests {
            let run = |spread: &str| run(&format!("pcap \"{}\" | {}", capture.display(), request.replace('N', spread)));
            let one = run("");
            for spread in ["spread=1", "spread=2", "spread=4"] {
                let several = run(spread);
                let is_same = several == one;
                assert!(is_same, "{} | {request}: {spread}\n{several:.2000?}\n{one:.2000?}", capture.display());
            }
        }
    }
}

#[test]
fn branches_of_a_split_give_what_one_filter_gives() {
    for capture in captures().iter().take(5) {
        let run = |chain: &str| run(&format!("pcap \"{}\" | {chain}", capture.display()));
        let one = run("port 80 | inspect");
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        for by in ["flow", "round-robin", "load"] {
            let several = run(&format!("split by={by} | {{ port 80 + port 80 + port 80 }} | join order=yes | inspect"));
            assert_eq!((&several.text, &several.end), (&one.text, &one.end), "{} by={by}", capture.display());
        }
        // On several threads each line comes once, in any order.
        let one = run("http | json");
        let several = run("split || { http + http } || join | json");
        assert_eq!(lines(&several.text), lines(&one.text), "{}", capture.display());
    }
}

/// Makes a folder with the bundled captures, half of them damaged or compressed.
fn several_captures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    let bytes_of = |name: &str| std::fs::read(bundled.join(name)).unwrap();
    let packed = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    for name in ["web.pcap", "dns.pcap", "http2.pcap", "tls.pcap"] {
        let bytes = bytes_of(name);
        let (half, third) = (bytes.len() / 2, bytes.len() / 3);
        put(&format!("{name}.1"), &bytes);
        put(&format!("{name}.2-cut"), &bytes[..half]);
        put(&format!("{name}.3-garbage"), &[&bytes[..third], &[0xaa; 40][..], &bytes[third..]].concat());
        put(&format!("{name}.4.gz"), &packed(&bytes));
        put(&format!("{name}.5-cut.gz"), &packed(&bytes)[..third]);
    }
    put("empty.pcap", b"");
    put("header.pcap", &bytes_of("web.pcap")[..24]);
    put("text.pcap", b"no capture at all\n");
    folder
}

#[test]
fn several_captures_are_the_same_on_several_threads() {
    let folder = several_captures();
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let named = names.iter().map(|path| format!(" \"{}\"", path.display())).collect::<String>();
    let whole = format!(" \"{}\"", folder.path().display());
    let requests = [
        "pcap FILES ; count",
        "pcap FILES ; inspect",
        "pcap FILES | tcp N ; files OUT hash=no",
        "pcap FILES | http N ; json",
        "pcap FILES ; udp N ; dns | json",
        "pcap FILES ; decap ; tls | json",
        "pcap FILES ; packets | json",
        "pcap FILES | flows ; json",
        "pcap FILES | { tls + dns } ; json",
    ];
    for (request, files) in requests.iter().flat_map(|request| [(request, &named), (request, &whole)]) {
        let run = |settings: &str, cut: &str, spread: &str| {
            let chain = request.replace(';', cut).replace('N', spread).replace("FILES", files);
            run(&format!("{settings}{chain}"))
        };
        let one = run("", "|", "");
        assert!(one.text.len() + one.files.len() > 20, "{request}: {one:?}");
        let several = [
            ("set workers=2; ", "|", ""),
            ("set workers=4; ", "|", ""),
            ("set workers=pipeline; ", "|", ""),
            ("", "||", ""),
            ("", "|", "spread=2"),
        ];
        for (settings, cut, spread) in several {
            let several = run(settings, cut, spread);
            assert!(several == one, "{settings}{request} {cut} {spread}\n{several:.2000?}\n{one:.2000?}");
        }
    }
}

#[test]
fn what_is_chosen_by_cost_changes_nothing() {
    let chains = [
        "tcp | http | files OUT hash=no",
        "work 3us | udp | dns | json",
        "tcp | work 2us | http | json",
        "{ tcp | tls + udp | dns } | json",
        "port 80 | work 5us | inspect",
    ];
    for capture in captures().iter().take(5) {
        for chain in chains {
            let run = |settings: &str| run(&format!("{settings}pcap \"{}\" | {chain}", capture.display()));
            let one = run("");
            for settings in ["workers=pipeline", "workers=auto", "workers=pipeline queue=ff", "workers=2 queue=ff"] {
                let chosen = run(&format!("set {settings}; "));
                assert!(chosen == one, "{} | {chain}: {settings}\n{chosen:.2000?}\n{one:.2000?}", capture.display());
            }
        }
    }
}

#[test]
fn cuts_change_nothing() {
    let captures = captures();
    for capture in captures.iter().take(5) {
        let run = |chain: &str| run(&format!("pcap \"{}\" {chain}", capture.display()));
        let one = run("| tcp | http | files OUT");
        for chain in ["|| tcp | http | files OUT", "|| tcp || http || files OUT", "| tcp || http | files OUT"] {
            assert_eq!(run(chain), one, "{} {chain}", capture.display());
        }
    }
}
