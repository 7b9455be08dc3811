//! Numbers that are not costs for each packet: the rate at which losses begin, the memory taken, the time from a
//! request to its first packet, and the load of an idle daemon.

use super::field::Field;
use super::listeners::Listener;
use crate::case::{CaseError, Numbers};
use crate::setting::Setting;
use std::process::Child;
use std::time::{Duration, Instant};

/// The highest rate without a loss, in thousands of packets a second; on each side that of the best of several sets of
/// listeners.
pub fn loss_free(
    setting: &Setting,
    ours: &[Vec<Listener>],
    peers: &[Vec<Listener>],
    frame_bytes: usize,
) -> Result<Numbers, CaseError> {
    let field = Field::new(setting)?;
    let best = |sets: &[Vec<Listener>]| {
        let rates = sets.iter().map(|listeners| field.highest_rate(listeners, frame_bytes));
        rates.collect::<Result<Vec<_>, _>>().map(|rates| rates.into_iter().fold(0.0, f64::max) / 1000.0)
    };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "kpps", void: None };
    for _ in 0..setting.rounds() {
        numbers.ours.push(best(ours)?);
        numbers.peer.get_or_insert_default().push(best(peers)?);
    }
    Ok(numbers)
}

/// The rate that a sender of 64-byte frames reaches beside these listeners and beside the peers, in thousands of
/// packets a second. It should send at `rate`; 0 = as fast as possible.
pub fn sender(setting: &Setting, listeners: &[Listener], peers: &[Listener], rate: u64) -> Result<Numbers, CaseError> {
    let field = Field::of_urgent(setting)?;
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "kpps", void: None };
    for _ in 0..setting.rounds() {
        numbers.ours.push(field.speed(listeners, 64, rate)? / 1000.0);
        numbers.peer.get_or_insert_default().push(field.speed(peers, 64, rate)? / 1000.0);
    }
    Ok(numbers)
}

/// How far MemAvailable falls, in MiB, after listeners have started and all their buffers have been written.
pub fn memory(setting: &Setting, ours: &[Listener], peer: &[Listener]) -> Result<Numbers, CaseError> {
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "MiB", void: None };
    for _ in 0..setting.rounds() {
        numbers.ours.push(taken(setting, ours)?);
        numbers.peer.get_or_insert_default().push(taken(setting, peer)?);
    }
    Ok(numbers)
}

/// Number of frames that fill every buffer: 64 MiB, however they are packed.
const FILL: u64 = 60_000;

fn taken(setting: &Setting, listeners: &[Listener]) -> Result<f64, CaseError> {
    let before = available()?;
    let field = Field::new(setting)?;
    let running = listeners.iter().map(|listener| field.start(listener)).collect::<Result<Vec<_>, _>>()?;
    let sending = field.start_sending(FILL, 1500, 100_000)?;
    std::thread::sleep(Duration::from_secs(2));
    drop(sending);
    let taken = before - available()?;
    drop(running);
    Ok(taken)
}

/// MemAvailable, MiB.
fn available() -> Result<f64, CaseError> {
    // Memory that was freed a moment ago may not be counted yet.
    std::thread::sleep(Duration::from_millis(500));
    let available = base::memory::available().map(|bytes| bytes as f64 / f64::from(1 << 20));
    available.ok_or_else(|| CaseError::Failed("no /proc/meminfo".into()))
}

/// Requests measured for a 99th percentile.
const HUNDRED: usize = 100;

/// Time from the start of the program to the end of a request for a single packet, while 20,000 packets come a second:
/// the 99th percentile, in ms.
pub fn first_packet(setting: &Setting) -> Result<Numbers, CaseError> {
    let field = Field::new(setting)?;
    let request = format!("ethernet {} | bpf \"udp\" | head 1 | drop", field.device());
    let _sending = field.start_sending(u64::MAX / 2_000_000_000, 64, 20_000)?;
    let mut ours = Vec::new();
    for _ in 0..setting.rounds() {
        let mut times = Vec::with_capacity(HUNDRED);
        for _ in 0..HUNDRED {
            let began = Instant::now();
            let status = field.request(&request).status().map_err(|error| CaseError::Failed(error.to_string()))?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            if !status.success() {
                return Err(CaseError::Failed("a request failed".into()));
            }
        }
        times.sort_by(f64::total_cmp);
        ours.push(times[HUNDRED - 2]);
    }
    Ok(Numbers { ours, peer: None, unit: "ms", void: None })
}

/// How long an idle daemon is observed.
const IDLE: Duration = Duration::from_secs(2);

struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Part of a processor that the daemon takes while ten requests wait and no packets come, in %.
pub fn idle_daemon(setting: &Setting) -> Result<Numbers, CaseError> {
    let field = Field::new(setting)?;
    let mut requests = Vec::new();
    for port in 0..10 {
        let request = format!("ethernet {} | bpf \"udp port {}\" | drop", field.device(), 1000 + port);
        let child = field.request(&request).spawn().map_err(|error| CaseError::Failed(error.to_string()))?;
        requests.push(Idle(child));
    }
    std::thread::sleep(IDLE);
    let share = |_| {
        let (before, began) = (field.daemon_time(), Instant::now());
        std::thread::sleep(IDLE);
        100.0 * (field.daemon_time() - before) / began.elapsed().as_secs_f64()
    };
    Ok(Numbers { ours: (0..setting.rounds()).map(share).collect(), peer: None, unit: "%", void: None })
}
