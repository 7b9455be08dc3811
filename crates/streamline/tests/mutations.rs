//! Sends damaged captures through everything that parses: no panic, no hang, no unbounded memory, and each error is
//! reported or counted.
//!
//! `STREAMLINE_MUTATIONS=N` sets the number of damaged copies (`cargo xtask mutate N` runs it optimised). Captures come
//! from the shared collection if it is there, else the bundled ones are used. A program of its own, since the memory is
//! that of the whole process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use streamline::{Error, Output, Session, StopFlag};
use testkit::random::Random;

const MEMORY_MAX_KIB: u64 = 1_500_000;

/// A damaged copy that takes longer than this is a hang.
const HANG: Duration = Duration::from_secs(120);

/// Captures by size class: powers of four.
fn captures() -> Vec<Vec<PathBuf>> {
    let shared = std::env::var_os("STREAMLINE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let shared = shared.join("data/captures");
    let folder = if shared.is_dir() {
        shared
    } else {
        eprintln!("the shared captures are not here; the bundled ones are used");
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures")
    };
    let mut classes: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let size = path.metadata().unwrap().len();
        if path.extension().is_none_or(|ending| ending != "md") {
            classes.entry(size.max(1).ilog2() / 2).or_default().push(path);
        }
    }
    classes
        .into_values()
        .map(|mut paths| {
            paths.sort();
            paths
        })
        .collect()
}

/// Offsets of the record bodies of a little-endian classic capture; empty for other files.
fn bodies(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut bodies = Vec::new();
    if !bytes.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]) {
        return bodies;
    }
    let mut at = 24;
    while let Some(head) = bytes.get(at..at + 16) {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if len > bytes.len() - at - 16 {
            break;
        }
        bodies.push((at + 16, len));
        at += 16 + len;
    }
    bodies
}

/// Damages a copy. Half of the time it damages only records, so that the reader accepts the file.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let bodies = if random.below(2) == 0 { bodies(bytes) } else { Vec::new() };
    for _ in 0..1 + random.below(20) {
        let (start, len) = match bodies.get(random.below(bodies.len())) {
            Some(body) => *body,
            None => (0, bytes.len()),
        };
        // Half of the damage is in the headers, which come first.
        let bound = if random.below(2) == 0 { len.min(80) } else { len };
        if bound == 0 {
            continue;
        }
        let at = start + random.below(bound);
        match random.below(5) {
            0 => bytes[at] = random.number() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => {
                let end = (at + 1 + random.below(8)).min(start + len);
                bytes[at..end].fill([0, 0xff][random.below(2)]);
            }
            _ if bodies.is_empty() && random.below(3) == 0 => bytes.truncate(at),
            _ => {
                let from = start + random.below(len);
                let run = (1 + random.below(16)).min(start + len - at).min(start + len - from);
                bytes.copy_within(from..from + run, at);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

const REQUEST: &str = "pcap $file | { http | files dir=$bodies + tcp | files dir=$streams hash=no + dns | json + tls | json \
                       + inspect + udp | match \"a\" | drop + port | { |80 count | drop + |! histogram | drop } \
                       + eve + zeek $logs + rules $rules + packets | by proto + ssh | json + smtp | drop + ftp | json \
                       + sip | json + dhcp | json + ntp | json }";

/// Rules that use all keywords, and match often.
const RULES: &str = r#"
alert ip any any -> any any (msg:"header"; ttl:>0; id:!1; fragbits:!M; sid:1;)
alert tcp any any -> any any (msg:"packet"; content:"|00|"; dsize:>10; byte_test:1,>,10,0,relative; sid:2;)
alert tcp any any -> any any (msg:"stream"; flow:established; content:"T"; nocase; content:"/"; distance:0; within:400; sid:3;)
alert tcp any any -> any any (msg:"regex"; flow:established; content:"e"; pcre:"/e(.)[^ ]*\1/R"; sid:4;)
alert http any any -> any any (msg:"uri"; http.uri; content:"/"; http.method; content:"GET"; flowbits:set,asked; sid:5;)
alert http any any -> any any (msg:"body"; flowbits:isset,asked; file.data; content:"a"; isdataat:10,relative; sid:6;)
alert http any any -> any any (msg:"header"; http.header; content:":"; byte_jump:1,0,relative; content:" "; sid:7;)
alert dns any any -> any any (msg:"dns"; dns.query; content:"."; pcre:"/[a-z]+/i"; sid:8;)
alert tls any any -> any any (msg:"tls"; tls.sni; content:"."; endswith; threshold:type limit, track by_src, count 1, seconds 60; sid:9;)
alert ssh any any -> any any (msg:"ssh"; ssh.software; content:"ssh"; nocase; sid:10;)
alert udp any any -> any any (msg:"udp"; content:"|00 00|"; detection_filter:track by_dst, count 2, seconds 10; sid:11;)
"#;

#[test]
fn damaged_captures_do_no_harm() {
    let count: u64 = std::env::var("STREAMLINE_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let classes = captures();
    let done = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| run_some(&classes, &done, count))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    });
    let memory = peak_memory_kib();
    eprintln!("{count} damaged copies, {failed} refused with an error, peak memory {memory} KiB");
    assert!(memory < MEMORY_MAX_KIB, "{memory} KiB");
}

/// Runs copies until `count` are done. Returns how many were refused with an error. A copy depends on its number alone.
fn run_some(classes: &[Vec<PathBuf>], done: &AtomicU64, count: u64) -> u64 {
    let folder = folder();
    std::fs::write(folder.path().join("all.rules"), RULES).unwrap();
    let now = Arc::new(Mutex::new(None));
    watch(Arc::clone(&now));
    let mut failed = 0;
    loop {
        // Relaxed: only the number matters.
        let number = done.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            break;
        }
        let mut random = Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Small captures more often than large ones, which take a thousand times as long.
        let class = (0..2).map(|_| random.below(classes.len())).min().unwrap_or(0);
        let path = &classes[class][random.below(classes[class].len())];
        let mut bytes = std::fs::read(path).unwrap();
        damage(&mut bytes, &mut random);
        let file = folder.path().join("damaged");
        std::fs::write(&file, &bytes).unwrap();
        *now.lock().unwrap() = Some((Instant::now(), format!("copy {number}, of {}", path.display())));
        let out = folder.path().join("out");
        let outcome = std::panic::catch_unwind(|| run(&file, &out));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                failed += 1;
                assert!(!error.to_string().trim().is_empty(), "an error says something");
            }
            Err(_) => {
                let kept = std::env::temp_dir().join(format!("streamline-mutation-{number}"));
                std::fs::write(&kept, &bytes).unwrap();
                panic!("copy {number} of {} panicked; it is kept as {}", path.display(), kept.display());
            }
        }
        _ = std::fs::remove_dir_all(&out);
    }
    *now.lock().unwrap() = None;
    failed
}

/// In memory where that is possible: a copy makes some dozens of files.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn run(file: &Path, out: &Path) -> Result<(), Error> {
    let text = |path: PathBuf| path.display().to_string();
    let variables = BTreeMap::from([
        ("file".to_string(), text(file.to_path_buf())),
        ("bodies".to_string(), text(out.join("bodies"))),
        ("streams".to_string(), text(out.join("streams"))),
        ("logs".to_string(), text(out.join("logs"))),
        ("rules".to_string(), text(file.with_file_name("all.rules"))),
    ]);
    let session = Session::with_output(Output::new(Box::new(std::io::sink()), false));
    let mut job = session.prepare(REQUEST, &variables)?;
    let (outcome, report) = job.run_to_end(&StopFlag::new(), &mut |worker| {
        worker.take_notices();
    });
    if outcome.is_ok() {
        report.check().unwrap_or_else(|wrong| panic!("counters: {wrong}"));
    }
    assert_eq!(report.traffic.faults, 0, "a descriptor named nothing");
    outcome.map(|_| ())
}

/// Ends the process when one copy takes too long: a hang cannot be caught.
fn watch(now: Arc<Mutex<Option<(Instant, String)>>>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if let Ok(Some((since, name))) = now.lock().as_deref()
                && since.elapsed() > HANG
            {
                eprintln!("hang: {name}");
                std::process::abort();
            }
        }
    });
}
