//! The stages of a request in `ps`, `top` and the report of `run`. `requests.rs` tests the results of stages.

use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(30);

/// Bytes of a classic capture's head.
const HEAD: usize = 24;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap")
}

fn ask(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--daemon=/nowhere/control").env("XDG_RUNTIME_DIR", folder);
    command.stdin(Stdio::null()).output().unwrap()
}

/// A request in its own folder, with `empty.pcap`, which has no packets.
struct Running {
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Running {
    fn new(request: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("empty.pcap"), &std::fs::read(bundled()).unwrap()[..HEAD]).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", request]).current_dir(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Running { folder, child: Some(child) }
    }

    fn number(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Its entry in `ps --json`. `null`: it cannot be asked.
    fn listed(&self) -> Value {
        let output = ask(self.folder.path(), &["ps", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_it = |request: &&Value| request["process"] == self.number() && request["trouble"].is_null();
        all["requests"].as_array().unwrap().iter().find(is_it).cloned().unwrap_or_default()
    }

    /// Its entry, once `is_so` holds.
    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let listed = self.listed();
            if !listed.is_null() && is_so(&listed) {
                return listed;
            }
            assert!(began.elapsed() < LONG, "{what}: it did not come to that: {listed}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The cells of its rows in a command's table of stages.
    fn rows(&self, arguments: &[&str]) -> Vec<Vec<String>> {
        let shown = text(&ask(self.folder.path(), arguments).stdout);
        let lines = shown.lines().skip_while(|line| !line.starts_with("request ")).skip(1);
        let cells =
            |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect();
        let is_its = |row: &Vec<String>| row.first() == Some(&self.number().to_string());
        lines.take_while(|line| !line.is_empty()).map(cells).filter(is_its).collect()
    }

    /// Stops it, and returns its counts.
    fn stop(mut self) -> Value {
        let child = self.child.take().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stderr).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn doing(listed: &Value) -> Vec<&str> {
    let threads = |stage: &'_ Value| stage["threads"].as_array().unwrap().len();
    let stages = listed["stages"].as_array().unwrap();
    stages
        .iter()
        .flat_map(|stage| (0..threads(stage)).map(|thread| stage["threads"][thread]["doing"].as_str().unwrap()))
        .collect()
}

#[test]
fn threads_that_sleep_show_as_such() {
    let running = Running::new("pcap empty.pcap follow=yes || tcp || count");
    let listed = running.until("all sleep", |listed| doing(listed) == ["asleep"; 3]);
    let filters: Vec<&Value> = listed["stages"].as_array().unwrap().iter().map(|stage| &stage["filters"]).collect();
    assert_eq!(filters, ["pcap empty.pcap follow=yes", "decap, tcp", "count, json"]);
    let channel = serde_json::json!([{ "from": 1, "full": 0, "room": 16 }]);
    assert_eq!(listed["stages"][1]["threads"][0]["channels"], channel, "{listed}");
    running.stop();
}

#[test]
fn a_stage_that_is_too_slow_shows_a_full_channel_before_it() {
    // The first stage gives far more than the second takes, for longer than this test looks.
    let running = Running::new("generate count=10M || work 100us || drop");
    let is_slow = |listed: &Value| {
        let channel = &listed["stages"][1]["threads"][0]["channels"][0];
        doing(listed)[..2] == ["waits for room", "awake"] && channel["full"].as_u64().unwrap() >= 14
    };
    let listed = running.until("the first waits", is_slow);
    assert!(listed["stages"][0]["threads"][0]["blocks"].as_u64().unwrap() > 0, "{listed}");
}

#[test]
fn ps_and_top_have_a_row_for_each_thread() {
    let running = Running::new("set workers=2; generate rate=5000 | udp | count");
    running.until("blocks come", |listed| listed["stages"][2]["threads"][0]["blocks"].as_u64() > Some(1000));
    let commands: &[&[&str]] = &[&["ps"], &["top", "--interval", "0.5", "--count", "1"]];
    for command in commands {
        let rows = running.rows(command);
        let row = |row: &Vec<String>| (row[1].clone(), row.last().unwrap().clone());
        let threads: Vec<(String, String)> = rows.iter().map(row).collect();
        let wanted = [("1", "generate rate=5000, decap"), ("2", "udp"), ("3", "udp"), ("4", "count, json")];
        assert_eq!(threads, wanted.map(|(thread, filters)| (thread.into(), filters.into())), "{command:?}: {rows:?}");
        assert!(rows[0][3].parse::<u64>().unwrap() > 500 && rows[0][4] == "-", "{command:?}: {rows:?}");
        assert!(rows[3][4].contains("from 2, ") && rows[3][4].ends_with(" from 3"), "{command:?}: {rows:?}");
    }
    let report = running.stop();
    let all = &report["stages"][0]["blocks"][0];
    let shares: u64 =
        report["stages"][1]["blocks"].as_array().unwrap().iter().map(|share| share.as_u64().unwrap()).sum();
    assert_eq!((&shares.into(), &report["filters"][0]["blocks_made"]), (all, all), "{report}");
}

#[test]
fn a_request_on_one_thread_looks_as_before() {
    let running = Running::new("pcap empty.pcap follow=yes | tcp | count");
    let listed = running.until("it can be asked", |_| true);
    assert_eq!(listed.get("stages"), None);
    assert_eq!(running.rows(&["ps"]), Vec::<Vec<String>>::new());
    assert_eq!(running.stop().get("stages"), None);
}

#[test]
fn the_report_names_stages_where_there_are_several() {
    let report = |form: &str, request: &str| {
        let request = request.replace('W', bundled().to_str().unwrap());
        let output = Command::new(PROGRAM).args(["run", "--stats", form, &request]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = report("table", "set workers=2; pcap W | http | count");
    let threads: Vec<&str> = said.lines().filter(|line| line.starts_with("thread")).collect();
    let [first, shares, last] = threads[..] else { panic!("{said}") };
    assert!(first.starts_with("thread 1: pcap ") && first.ends_with(": 207 blocks"), "{said}");
    assert!(shares.starts_with("threads 2-3: tcp, http: ") && shares.contains(" + "), "{said}");
    assert_eq!(last, "thread 4: count, json: 69 blocks");
    let json: Value = serde_json::from_str(&report("json", "pcap W || tcp | http || drop")).unwrap();
    let stages = serde_json::json!([["decap", "tcp", "http"], ["drop"]]);
    assert_eq!((&json["stages"][1]["filters"], &json["stages"][2]["filters"]), (&stages[0], &stages[1]), "{json}");
    assert_eq!(json["stages"][1]["nodes"], serde_json::json!([1, 2, 3]));
    assert_eq!(json["stages"][2]["blocks"], serde_json::json!([69]));
    assert!(!report("table", "pcap W | http | drop").contains("thread"));
}

#[test]
fn threads_run_on_the_processors_that_the_request_names() {
    let allowed = |file: &str| {
        let status = std::fs::read_to_string(file).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(str::trim));
        line.map(String::from).unwrap_or_default()
    };
    let all = allowed("/proc/self/status");
    let first = all.split([',', '-']).next().unwrap().to_string();
    let last = all.rsplit([',', '-']).next().unwrap().to_string();
    let running = Running::new(&format!("set cpus=\"{last},{first}\"; generate rate=5000 || udp || count"));
    running.until("blocks come", |listed| listed["stages"][2]["threads"][0]["blocks"].as_u64() > Some(100));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.number())).unwrap();
    let mut threads: Vec<(String, String)> = tasks
        .map(|task| task.unwrap().path())
        .map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default().trim().to_string();
            (name, allowed(task.join("status").to_str().unwrap()))
        })
        .filter(|(name, _)| name.starts_with("thread ") || name == "streamline")
        .collect();
    threads.sort();
    let wanted = [("streamline", &last), ("thread 2", &first), ("thread 3", &last)];
    assert_eq!(threads, wanted.map(|(name, cpu)| (name.to_string(), cpu.clone())));
    running.stop();
}

#[test]
fn what_a_run_measures_is_what_the_next_one_goes_by() {
    let folder = tempfile::tempdir().unwrap();
    let program = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("XDG_STATE_HOME", folder.path()).env("XDG_RUNTIME_DIR", folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let request = format!("set workers=auto; pcap {} | http | match \"[a-z]+b\" | drop", bundled().display());
    let explain = || program(&["explain", &request]).0;
    assert!(explain().contains("no filter has a known cost"), "{}", explain());
    let (_, told) = program(&["run", "--profile", &request]);
    let row = told.lines().find(|line| line.starts_with("http ") && line.split_whitespace().count() == 5).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1], "91", "{told}");
    assert!(cells[2].parse::<u64>().unwrap() > 0, "{told}");
    let file = folder.path().join("streamline/profile.json");
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(saved["filters"]["http"]["ns"].to_string(), cells[2], "{saved}");
    assert!(explain().contains("of the measured time") || explain().contains("one processor"), "{}", explain());
    // A damaged file counts as no file, and the next run replaces it.
    std::fs::write(&file, "{").unwrap();
    assert!(explain().contains("no filter has a known cost"), "{}", explain());
    program(&["run", "-q", "--profile", &request]);
    assert!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).is_ok());
}

/// Runs a request as a user without rights. `limit`: an option of `prlimit`.
fn limited(limit: &str, request: &str) -> Output {
    let mut command = Command::new("prlimit");
    command.args([limit, PROGRAM, "run", "-q", request]);
    command.current_dir(bundled().parent().unwrap()).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

#[test]
fn a_thread_or_a_descriptor_that_cannot_be_had_is_an_error_by_name() {
    let requests = [
        "pcap web.pcap | count",
        "set workers=4; pcap web.pcap dns.pcap | http | count",
        "set workers=pipeline; pcap web.pcap | tcp | http | count",
        "pcap web.pcap | tcp spread=2 || http || count",
    ];
    let limits = (3..=41)
        .step_by(2)
        .map(|files| format!("--nofile={files}"))
        .chain((0..=6).map(|threads| format!("--nproc={threads}")));
    for limit in limits {
        for request in requests {
            let output = limited(&limit, request);
            let (said, status) = (text(&output.stderr), output.status.code());
            match status {
                Some(0) => {}
                // The loader has no descriptor to open a library with.
                Some(127) => {}
                Some(1) => {
                    let bare =
                        ["error: Too many open files", "error: Resource temporarily"].map(|bare| said.contains(bare));
                    assert!(said.contains("error: ") && bare == [false; 2], "{limit} {request}: {said}");
                }
                _ => panic!("{limit} {request}: {status:?} {said}"),
            }
        }
    }
    let said = text(&limited("--nofile=12", requests[1]).stderr);
    assert!(said.contains("no channel between threads can be made"), "{said}");
}
