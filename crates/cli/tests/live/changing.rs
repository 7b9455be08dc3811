//! Interfaces that change while connections carry bytes: routes, addresses, the device, its state and its MTU. The peer
//! is the kernel's.

use crate::flows::{command, interface_of};
use crate::net::*;
use driver::change::Change;
use socket::net::{OnChange, Options, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::{self as kernel, Shutdown};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

/// The longest silence of a connection: far more than any change takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The byte at each position of a stream. Missing or repeated parts show.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes until it is stopped, then calls `finish`.
fn pour(mut to: impl Write, finish: impl FnOnce(), stop: &AtomicBool) -> u64 {
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let some: Vec<u8> = (at..at + 8192).map(byte).collect();
        to.write_all(&some).unwrap();
        at += 8192;
        // The rate of a slow program: this test is about changes.
        std::thread::sleep(Duration::from_micros(500));
    }
    finish();
    at
}

/// Reads to the end, and checks each byte. Returns their number, and the longest time without one.
fn drain(mut from: impl Read, count: &AtomicU64) -> (u64, Duration) {
    let (mut at, mut some, mut last, mut longest) = (0, vec![0; 65536], Instant::now(), Duration::ZERO);
    loop {
        let read = from.read(&mut some).unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if read == 0 {
            return (at, longest);
        }
        assert!(some[..read].iter().zip(at..).all(|(got, at)| *got == byte(at)), "behind byte {at}");
        at += read as u64;
        count.store(at, Ordering::Relaxed);
    }
}

/// Moves bytes both ways between a flow and the kernel while `change` runs. `change` may wait until more bytes have arrived.
pub(crate) fn while_bytes_go(near: &TcpStream, far: &kernel::TcpStream, change: impl FnOnce(&dyn Fn())) {
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    near.set_write_timeout(Some(PATIENCE)).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far.set_write_timeout(Some(PATIENCE)).unwrap();
    let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    scope(|scope| {
        let (stop, counts) = (&stop, &counts);
        let stopping = Stop(stop);
        let poured = [
            scope.spawn(move || pour(near, || near.shutdown(Shutdown::Write).unwrap(), stop)),
            scope.spawn(move || pour(far, || far.shutdown(Shutdown::Write).unwrap(), stop)),
        ];
        let drained = [scope.spawn(move || drain(far, &counts[0])), scope.spawn(move || drain(near, &counts[1]))];
        let more = || {
            let now = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            let before = now();
            until("bytes arrive both ways", || now().iter().zip(before).all(|(now, before)| *now > before + 100_000));
        };
        more();
        change(&more);
        more();
        drop(stopping);
        let poured = poured.map(|thread| thread.join().unwrap());
        let drained = drained.map(|thread| thread.join().unwrap());
        assert_eq!(poured, drained.map(|(count, _)| count));
        let longest = drained.map(|(_, longest)| longest);
        assert!(longest.iter().all(|longest| *longest < PATIENCE), "{longest:?}");
    });
}

/// Runs a command as root. Returns its message if it failed. AF_XDP locks memory, of which other tests may hold too
/// much for a while: in that case the command is run again.
fn tried(net: &Net, arguments: &[&str]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let output = command(net, 0, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(());
        }
        if !is_limited(&said) || begun.elapsed() > Duration::from_secs(5) {
            return Err(said);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether the command has failed because other processes hold the memory that AF_XDP wants to lock.
fn is_limited(said: &str) -> bool {
    said.contains("cannot lock")
}

fn done(net: &Net, arguments: &[&str]) {
    tried(net, arguments).unwrap_or_else(|said| panic!("{arguments:?}: {said}"));
}

fn refused(net: &Net, user: u32, arguments: &[&str]) -> String {
    let output = command(net, user, arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ip(end: &End, arguments: &[&str]) {
    let run = || Command::new("ip").args(arguments).status();
    assert!(end.namespace.enter(run).unwrap().unwrap().success(), "ip {arguments:?}");
}

/// The changes that a connection was told: whether its address exists, and its MTU.
pub(crate) type Told = Arc<Mutex<Vec<(bool, u32)>>>;

/// A connection from a flow to the kernel's side, with a list of its changes.
pub(crate) fn connected(net: &Net, to: &str) -> (TcpStream, kernel::TcpStream, Told) {
    let listener = net.pair.far.namespace.enter(|| kernel::TcpListener::bind((to, 0))).unwrap().unwrap();
    let told = Told::default();
    let noted = Arc::clone(&told);
    let note = OnChange::new(move |change| noted.lock().unwrap().push((change.facts.has_address, change.facts.mtu)));
    let options = Options { daemon: net.socket(), on_change: Some(note), ..Options::default() };
    let near = TcpStream::connect_with(&options, listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0, told)
}

/// Only one test with AF_XDP runs at a time: during a move two interfaces are open, which uses all memory that may be locked.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An interface on `near`, and beside it the device `other`. A bridge connects both to the kernel's 10.0.0.1.
fn bridged(how: &str) -> Option<(Net, Pair)> {
    if !may_make_networks() {
        return None;
    }
    let (near, far) = (quiet_namespace(), quiet_namespace());
    let first = Pair::named([(&near, "near"), (&far, "far")], 1).unwrap();
    let second = Pair::named([(&near, "other"), (&far, "far2")], 1).unwrap();
    let make = || Command::new("ip").args(["link", "add", "bridge0", "type", "bridge"]).output();
    let made = far.enter(make).unwrap();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped (tools): no bridge can be made by `ip`");
        return None;
    }
    for port in ["far", "far2"] {
        ip(&first.far, &["link", "set", port, "master", "bridge0"]);
    }
    ip(&first.far, &["link", "set", "bridge0", "up"]);
    ip(&first.far, &["address", "add", "10.0.0.1/24", "dev", "bridge0"]);
    let net = Net::of(first, Some("[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\"]\nmodes = [\"flow\"]\n"));
    match tried(&net, &["up", "near", "--addr", "10.0.0.2/24", "--via", how]) {
        Ok(()) => Some((net, second)),
        Err(said) if is_limited(&said) => {
            eprintln!("skipped (limits): {said}");
            None
        }
        Err(said) => panic!("{said}"),
    }
}

#[test]
fn connections_and_listeners_go_on_while_their_interface_moves() {
    let _alone = alone();
    for how in ["af_packet", "af_xdp"] {
        let Some((net, _second)) = bridged(how) else { return };
        let (near, far, told) = connected(&net, "10.0.0.1");
        let options = Options { daemon: net.socket(), ..Options::default() };
        let listener = TcpListener::bind_with(&options, "10.0.0.2:7000").unwrap();
        let (mac, mut moves) = (near.facts().mac, 0);
        while_bytes_go(&near, &far, |more| {
            for [from, to] in [["near", "other"], ["other", "near"], ["near", "other"]] {
                match tried(&net, &["move", from, to]) {
                    Err(said) if is_limited(&said) => return eprintln!("skipped (limits): {said}"),
                    moved => moved.unwrap(),
                }
                moves += 1;
                more();
                let connect = || kernel::TcpStream::connect("10.0.0.2:7000");
                let mut asking = net.pair.far.namespace.enter(connect).unwrap().unwrap();
                asking.write_all(b"hello").unwrap();
                let mut heard = [0; 5];
                listener.accept().unwrap().0.read_exact(&mut heard).unwrap();
                assert_eq!(&heard, b"hello");
            }
        });
        assert_eq!(*told.lock().unwrap(), vec![(true, 1500); moves]);
        assert_eq!(near.facts().mac == mac, moves % 2 == 0, "{how}");
        if moves < 3 {
            return;
        }
        // The host has the first device again.
        done(&net, &["up", "near", "--addr", "10.0.1.2/24", "--via", "af_packet"]);
        done(&net, &["down", "other"]);
        drop((near, listener));
    }
}

#[test]
fn a_move_that_cannot_be_changes_nothing() {
    let Some((net, second)) = bridged("af_packet") else { return };
    let (near, far, told) = connected(&net, "10.0.0.1");
    while_bytes_go(&near, &far, |more| {
        let said = refused(&net, 0, &["move", "near", "none"]);
        assert!(said.contains("there is no device `none`"), "{said}");
        assert!(refused(&net, 0, &["move", "near", "near"]).contains("`near` is up"));
        assert!(refused(&net, 0, &["move", "none", "other"]).contains("`none` is not up"));
        assert!(refused(&net, NOBODY, &["move", "near", "other"]).contains("only root"));
        ip(&second.near, &["address", "add", "10.5.0.2/24", "dev", "other"]);
        assert!(refused(&net, 0, &["move", "near", "other"]).contains("has the address 10.5.0.2/24 in the kernel"));
        more();
    });
    assert_eq!(*told.lock().unwrap(), []);
}

#[test]
fn a_connection_goes_on_while_its_route_changes() {
    let Some(net) = may_make_networks().then(Pair::new).and_then(|pair| interface_of(pair, &[])) else { return };
    let device = net.device().to_string();
    ip(&net.pair.far, &["address", "add", "10.0.0.9/24", "dev", &net.pair.far.name]);
    ip(&net.pair.far, &["link", "set", "lo", "up"]);
    ip(&net.pair.far, &["address", "add", "20.0.0.1/32", "dev", "lo"]);
    let route = |what: &str, to: &str, via: &str| done(&net, &["route", what, &device, to, "via", via]);
    route("add", "default", "10.0.0.1");
    let (near, far, told) = connected(&net, "20.0.0.1");
    while_bytes_go(&near, &far, |more| {
        for _ in 0..3 {
            route("add", "20.0.0.0/8", "10.0.0.9");
            route("del", "default", "10.0.0.1");
            more();
            route("add", "default", "10.0.0.1");
            route("del", "20.0.0.0/8", "10.0.0.9");
            more();
        }
        // Without any route for a while.
        route("del", "default", "10.0.0.1");
        std::thread::sleep(Duration::from_millis(300));
        route("add", "0.0.0.0/0", "10.0.0.9");
    });
    assert_eq!(*told.lock().unwrap(), []);
    for (arguments, expected) in [
        (&["route", "add", &device, "20.0.0.1/8", "via", "10.0.0.1"][..], "did you mean 20.0.0.0/8?"),
        (&["route", "add", &device, "20.0.0.0/8", "via", "20.0.0.1"], "is no neighbour"),
        (&["route", "del", &device, "30.0.0.0/8"], "has none"),
        (&["route", "add", "none", "20.0.0.0/8"], "`none` is not up"),
        (&["addr", "del", &device, "10.0.0.3/24"], "it has 10.0.0.2/24"),
        (&["addr", "add", &device, "10.0.0.255/24"], "no address of a host"),
    ] {
        let said = refused(&net, 0, arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    for wrong in [&["route", "add", &device, "20.0.0.0/8", "by", "10.0.0.1"][..], &["route", "add", &device, "20/8"]] {
        let output = command(&net, 0, wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_connection_goes_on_when_its_address_comes_back_and_is_told() {
    let Some(net) = may_make_networks().then(Pair::new).and_then(|pair| interface_of(pair, &[])) else { return };
    let device = net.device().to_string();
    let (near, far, told) = connected(&net, "10.0.0.1");
    while_bytes_go(&near, &far, |_| {
        done(&net, &["addr", "del", &device, "10.0.0.2/24"]);
        until("it is told", || !near.facts().has_address);
        let error = TcpStream::connect_with(&Options { daemon: net.socket(), ..Options::default() }, "10.0.0.1:9");
        assert!(error.unwrap_err().to_string().contains("no interface routes to 10.0.0.1"));
        done(&net, &["addr", "add", &device, "10.0.0.2/24"]);
    });
    assert_eq!(*told.lock().unwrap(), [(false, 1500), (true, 1500)]);
}

#[test]
fn a_connection_goes_on_when_its_device_was_down_or_its_link_was() {
    let _alone = alone();
    for how in ["af_packet", "af_xdp"] {
        let Some((net, _second)) = bridged(how) else { return };
        let (near, far, _) = connected(&net, "10.0.0.1");
        let (idle, _far, _) = connected(&net, "10.0.0.1");
        let switch = |end: &End, up| end.change(&Change { up: Some(up), ..Change::default() });
        while_bytes_go(&near, &far, |more| {
            for end in [&net.pair.near, &net.pair.far, &net.pair.near] {
                switch(end, false);
                std::thread::sleep(Duration::from_millis(200));
                switch(end, true);
                more();
            }
        });
        net.pair.near.remove();
        let error = (&idle).read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown, "{how}: {error}");
    }
}

#[test]
fn segments_fit_a_device_whose_mtu_gets_smaller() {
    let _alone = alone();
    for how in ["af_packet", "af_xdp"] {
        let Some((net, _second)) = bridged(how) else { return };
        let (near, far, told) = connected(&net, "10.0.0.1");
        while_bytes_go(&near, &far, |more| {
            for mtu in [1300, 600, 1500, 9000] {
                net.pair.far.set_mtu(mtu.min(1500));
                net.pair.near.set_mtu(mtu);
                until("it is told", || near.facts().mtu == mtu.min(1500));
                more();
            }
        });
        assert_eq!(*told.lock().unwrap(), [1300, 600, 1500].map(|mtu| (true, mtu)), "not more than at the beginning");
    }
}

#[test]
fn changes_outlive_the_process_of_their_interface() {
    let Some(net) = may_make_networks().then(Pair::new).and_then(|pair| interface_of(pair, &[])) else { return };
    let device = net.device().to_string();
    done(&net, &["addr", "add", &device, "10.0.1.2/24"]);
    done(&net, &["route", "add", &device, "20.0.0.0/8", "via", "10.0.1.9"]);
    done(&net, &["addr", "del", &device, "10.0.0.2/24"]);
    let routes = || String::from_utf8(command(&net, 0, &["routes"]).output().unwrap().stdout).unwrap();
    let before = routes();
    assert!(before.contains("20.0.0.0/8") && before.contains("10.0.1.0/24") && !before.contains("10.0.0."), "{before}");
    ip(&net.pair.far, &["address", "add", "10.0.1.1/24", "dev", &net.pair.far.name]);
    let (near, far, _) = connected(&net, "10.0.1.1");
    while_bytes_go(&near, &far, |more| {
        super::restarts::kill_interface_process(&net);
        more();
    });
    assert_eq!(routes(), before);
    assert!(tried(&net, &["addr", "add", &device, "10.0.1.2/24"]).unwrap_err().contains("has 10.0.1.2 already"));
}
