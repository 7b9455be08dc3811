//! Unmodified programs: curl fetches a file, and nginx answers wrk, by `streamline net run` and by kernel sockets.

use super::bed::{BOTH, Bed, NEAR_IP, Whose};
use super::bulk::{FAR, PORT};
use super::part::{Killed, failed, spawn};
use super::streams::{is_text, text};
use super::{blocks, in_turns, numbers, row};
use crate::case::{Case, CaseError, Numbers};
use crate::machine::{CURL, NGINX, Peer, WRK};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 1_000_000_000;
/// With `--quick` curl fetches the file divided by this.
const QUICK: u64 = 5;

const WEB_PORT: u16 = 8080;
const PAGE: &str = "page";
const PAGE_BYTES: usize = 1024;
const CONNECTIONS: u64 = 64;
/// How long a web server may take to answer for the first time, and for each answer.
const READY: Duration = Duration::from_secs(10);

/// Makes wrk report its counters in one line; it calls this once, at its end.
const REPORT: &str = r#"done = function(summary)
  local errors = summary.errors
  local bad = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("\n%d %d %d %d\n", summary.requests, summary.bytes, summary.duration, bad))
end
"#;

/// The rows.
pub static CASES: &[Case] = &[
    row("curl fetches 1 GB, by `net run`", "the kernel's", Goal::AtLeast(0.35, 0.6), fetched),
    row("wrk asks nginx for 1 KiB, nginx by `net run`", "the kernel's", Goal::AtLeast(0.3, 0.6), answered),
];

/// A program on the near side; ours runs by `net run`.
fn program(setting: &Setting, bed: &Bed, whose: Whose, program: Peer) -> Result<Command, CaseError> {
    let path = program.find().map_err(CaseError::Missing)?;
    let mut command = match whose {
        Whose::Ours => {
            let mut command = Command::new(&setting.streamline);
            command.args(["net", "run", "--daemon"]).arg(bed.socket()).arg("--").arg(path);
            command
        }
        Whose::Kernel => Command::new(path),
    };
    command.stdin(Stdio::null());
    Ok(command)
}

// --- curl -----------------------------------------------------------------------------------------------------------

/// The rate of a file transfer, in Gb/s.
fn fetched(setting: &Setting) -> Result<Numbers, CaseError> {
    let bed = Bed::new(setting, None)?;
    let bytes = if setting.effort == Effort::Quick { FILE_BYTES / QUICK } else { FILE_BYTES };
    let [ours, kernel] = in_turns(5, |whose| {
        let _server = bed.tcp(bed.far(whose), Whose::Kernel, &["serve", PORT], None)?;
        let folder = setting.output()?;
        let file = folder.path().join("file");
        let mut curl = program(setting, &bed, whose, CURL)?;
        curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output"]).arg(&file);
        curl.arg(format!("http://{}/{bytes}", FAR));
        let began = Instant::now();
        let output = bed.near(whose).namespace.enter(move || curl.output()).and_then(|output| output);
        let output = output.map_err(failed)?;
        let took = began.elapsed();
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr)));
        }
        check(&file, bytes)?;
        Ok(bytes as f64 * 8.0 / took.as_secs_f64() / 1e9)
    })?;
    Ok(numbers(ours, Some(kernel), "Gb/s"))
}

/// Checks that the file has exactly this number of bytes of the pattern.
fn check(path: &Path, bytes: u64) -> Result<(), CaseError> {
    let (mut file, mut part, mut at) = (File::open(path).map_err(failed)?, vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut part).map_err(failed)? {
            0 if at == bytes => return Ok(()),
            0 => return Err(failed(format!("{at} bytes came of {bytes}"))),
            len if is_text(&part[..len], at) => at += len as u64,
            _ => return Err(failed(format!("wrong bytes came behind the first {at}"))),
        }
    }
}

// --- nginx ----------------------------------------------------------------------------------------------------------

struct Web(Option<Killed>);

impl Drop for Web {
    fn drop(&mut self) {
        // Its workers end with it only if it is not killed.
        if let Some(server) = self.0.take() {
            let _ = kill(Pid::from_raw(server.process() as i32), Signal::SIGTERM);
            server.wait(READY);
        }
    }
}

fn answered(setting: &Setting) -> Result<Numbers, CaseError> {
    let wrk = WRK.find().map_err(CaseError::Missing)?;
    let bed = Bed::new(setting, None)?;
    let folder = setting.output()?;
    let report = folder.path().join("report.lua");
    std::fs::write(&report, REPORT).map_err(failed)?;
    std::fs::write(folder.path().join(PAGE), &text(0)[..PAGE_BYTES]).map_err(failed)?;
    let mut servers = Vec::new();
    for whose in BOTH {
        servers.push(serve(setting, &bed, whose, folder.path())?);
    }
    let bytes = fetch(&bed, Whose::Kernel)?;
    let [ours, kernel] = in_turns(blocks(setting), |whose| {
        let mut wrk = Command::new(&wrk);
        wrk.args(["--threads", "1", "--connections", &CONNECTIONS.to_string(), "--duration", "1s", "--script"])
            .arg(&report);
        wrk.arg(format!("http://{NEAR_IP}:{WEB_PORT}/{PAGE}")).stdin(Stdio::null());
        let output = bed.far(whose).namespace.enter(move || wrk.output()).and_then(|output| output).map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = said.lines().next_back().unwrap_or_default().split(' ');
        let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
        let Ok([requests, came, us, bad]) = <[u64; 4]>::try_from(numbers.unwrap_or_default()) else {
            return Err(failed(format!("wrk said `{said}`")));
        };
        // wrk checks only the status. All answers have one length; at the end it has begun to read some.
        if bad > 0 || requests == 0 || !(requests * bytes..(requests + CONNECTIONS) * bytes).contains(&came) {
            return Err(failed(format!("wrk counts {requests} answers, {came} bytes, {bad} errors")));
        }
        fetch(&bed, whose)?;
        Ok(requests as f64 / us as f64 * 1e6)
    })?;
    drop(servers);
    Ok(numbers(ours, Some(kernel), "a second"))
}

/// Starts nginx with one worker on the near side, and waits until it answers.
fn serve(setting: &Setting, bed: &Bed, whose: Whose, folder: &Path) -> Result<Web, CaseError> {
    let own = folder.join(format!("{whose:?}"));
    std::fs::create_dir(&own).map_err(failed)?;
    let (root, own_path) = (folder.display(), own.display());
    let config = format!(
        "user root;\nworker_processes 1;\ndaemon off;\npid {own_path}/pid;\nevents {{ worker_connections 1024; }}\nhttp {{\n\
         access_log off;\nsendfile on;\nkeepalive_requests 1000000000;\n\
         server {{ listen {NEAR_IP}:{WEB_PORT}; root {root}; }}\n}}\n"
    );
    let path = own.join("nginx.conf");
    std::fs::write(&path, config).map_err(failed)?;
    let mut nginx = program(setting, bed, whose, NGINX)?;
    nginx.arg("-e").arg(own.join("errors")).arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    let web = Web(Some(Killed(spawn(bed.near(whose), nginx, None)?)));
    let until = Instant::now() + READY;
    loop {
        match fetch(bed, whose) {
            Ok(_) => return Ok(web),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => {
                let said = std::fs::read_to_string(own.join("errors")).unwrap_or_default();
                return Err(failed(format!("nginx does not answer: {said}")));
            }
        }
    }
}

/// Fetches the page from the far side, by hand, and checks it. Gives the bytes of the answer with its head.
fn fetch(bed: &Bed, whose: Whose) -> Result<u64, CaseError> {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = std::net::TcpStream::connect((NEAR_IP, WEB_PORT))?;
        stream.set_read_timeout(Some(READY))?;
        // The connection stays open like those of wrk, so that the head is the same.
        write!(stream, "GET /{PAGE} HTTP/1.1\r\nHost: {NEAR_IP}\r\n\r\n")?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while !is_whole(&answer) {
            match stream.read(&mut part)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                len => answer.extend_from_slice(&part[..len]),
            }
        }
        Ok(answer)
    };
    let answer = bed.far(whose).namespace.enter(ask).and_then(|answer| answer).map_err(failed)?;
    let body = &answer[answer.len() - PAGE_BYTES..];
    let is_right = answer.starts_with(b"HTTP/1.1 200 ") && is_text(body, 0);
    if is_right { Ok(answer.len() as u64) } else { Err(failed("nginx gave a wrong page")) }
}

/// Whether the head of an answer and the page are complete.
fn is_whole(answer: &[u8]) -> bool {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    end.is_some_and(|end| answer.len() >= end + 4 + PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_wrong_byte_or_too_few_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut bytes = [text(0), text(text(0).len() as u64)].concat();
        let whole = bytes.len() as u64;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(check(&path, whole), Ok(()));
        assert!(check(&path, whole + 1).is_err() && check(&path, whole - 1).is_err());
        bytes[200_000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(check(&path, whole).is_err());
    }
}
