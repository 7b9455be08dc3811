//! The rate of a TCP stream beside listeners: iperf3 sends from one side to the other as fast as it can.

use super::field::Field;
use super::listeners::Listener;
use crate::case::{CaseError, Numbers};
use crate::machine::{IPERF, Peer};
use crate::measure::Effort;
use crate::setting::Setting;
use driver::ethtool::{Ethtool, Offloads};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::End;

/// How long one stream is sent, in seconds.
const SECONDS: u32 = 2;

/// How often each side is measured.
const ROUNDS: usize = 25;
const QUICK_ROUNDS: usize = 3;

/// The address of the captured side, and of the other.
const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// The offloads of a device in a new pair.
pub const ALL: Offloads = Offloads {
    receive_checksum: true,
    transmit_checksum: true,
    scatter_gather: true,
    tso: true,
    gso: true,
    ..Offloads::NONE
};

const LONG: Duration = Duration::from_secs(10);

/// Gb/s of one TCP stream to the captured device, beside `ours` and beside the peer's listeners. Both devices have all
/// offloads or none.
pub fn throughput(
    setting: &Setting,
    ours: &[Listener],
    peer: &[Listener],
    offloads: bool,
) -> Result<Numbers, CaseError> {
    for peer in [IPERF, Peer { program: "ip", package: "iproute2" }] {
        peer.find().map_err(CaseError::Missing)?;
    }
    let field = Field::new(setting)?;
    for (end, address) in [field.near(), field.far()].into_iter().zip(ADDRESSES) {
        prepare(end, address, offloads)?;
    }
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "Gb/s", void: None };
    for _ in 0..if setting.effort == Effort::Quick { QUICK_ROUNDS } else { ROUNDS } {
        numbers.ours.push(stream(&field, ours)?);
        numbers.peer.get_or_insert_default().push(stream(&field, peer)?);
    }
    Ok(numbers)
}

fn failed(what: &str, why: impl std::fmt::Display) -> CaseError {
    CaseError::Failed(format!("{what}: {why}"))
}

fn prepare(end: &End, address: &str, offloads: bool) -> Result<(), CaseError> {
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).status().map(|status| status.success());
    let work = || -> std::io::Result<bool> {
        Ethtool::new()?.set_offloads(&end.name, if offloads { ALL } else { Offloads::NONE })?;
        // Pairs are made without ARP, so that only test frames are on them.
        Ok(ip(&["link", "set", "dev", &end.name, "arp", "on"])?
            && ip(&["address", "add", &format!("{address}/24"), "dev", &end.name])?)
    };
    match end.namespace.enter(work) {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(failed(&end.name, "it takes no address")),
        Ok(Err(error)) | Err(error) => Err(failed(&end.name, error)),
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stream(field: &Field, listeners: &[Listener]) -> Result<f64, CaseError> {
    let told = |error: std::io::Error| failed("iperf3", error);
    let listeners = listeners.iter().map(|listener| field.start(listener)).collect::<Result<Vec<_>, _>>()?;
    let mut server = Command::new("iperf3");
    server.args(["--server", "--one-off"]).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let _server = Server(field.near().namespace.enter(move || server.spawn()).map_err(told)?.map_err(told)?);
    let until = Instant::now() + LONG;
    loop {
        let mut client = Command::new("iperf3");
        client.args(["--client", ADDRESSES[0], "--json", "--connect-timeout", "1000"]);
        client.args(["--time", &SECONDS.to_string()]).stdin(Stdio::null());
        let output = field.far().namespace.enter(move || client.output()).map_err(told)?.map_err(told)?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match said["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) if output.status.success() => {
                drop(listeners);
                return Ok(rate / 1e9);
            }
            // The server is not listening yet.
            _ if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => return Err(failed("iperf3", said["error"].as_str().unwrap_or("it says nothing"))),
        }
    }
}
