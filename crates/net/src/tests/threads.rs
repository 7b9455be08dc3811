//! Interfaces with their threads, used through the daemon's API.

use super::bed::{
    self, ACK, Application, FAMILIES, FAR, NEAR, RST, SYN, Tcp, at, await_that, connecting, datagram, headers, joined,
    listener, no_limits, payload, received, six, udp,
};
use crate::{NetError, NetErrorKind, ShareLimits};
use buffer::flow::State;
use driver::loopback::{self, Capacity};
use flow::OpenFlow;
use rustix::io::Errno;
use std::time::Duration;

#[test]
fn two_applications_exchange_datagrams() {
    for at in FAMILIES {
        let [near, far] = joined();
        let (mut one, mut other) = (Application::new(&near, 1000), Application::new(&far, 1000));
        let mut bound = other.open(&udp(at(2, 4000), None));
        let mut client = one.open(&udp("0.0.0.0:0".parse().expect("an address"), Some(at(2, 4000))));
        assert_eq!(
            (client.granted.mac, client.granted.prefix, client.granted.mtu),
            (NEAR, if at(1, 0).is_ipv4() { 24 } else { 64 }, 1500)
        );
        assert!(client.granted.local.port() >= 49152 && client.granted.has_bells);
        let mut seen = Vec::new();
        for number in 0..1000_u32 {
            let frame = datagram([NEAR, [0; 6]], client.granted.local, at(2, 4000), &number.to_be_bytes());
            await_that("there is room", || client.send(&[&frame]).is_ok());
            seen.extend(received(&mut bound));
            if number % 100 == 0 {
                await_that("it arrives", || {
                    seen.extend(received(&mut bound));
                    seen.len() > number as usize
                });
            }
        }
        await_that("all arrive", || {
            seen.extend(received(&mut bound));
            seen.len() >= 1000
        });
        for (number, frame) in seen.iter().enumerate() {
            let expected = datagram([NEAR, FAR], client.granted.local, at(2, 4000), &(number as u32).to_be_bytes());
            assert_eq!(*frame, expected, "packet {number}");
        }
        let back = datagram([FAR, [0; 6]], at(2, 4000), client.granted.local, b"back");
        bound.send(&[&back]).expect("there is room");
        let mut answers = Vec::new();
        await_that("the answer arrives", || {
            answers.extend(received(&mut client));
            !answers.is_empty()
        });
        assert_eq!(payload(&answers[0]), *b"back");
        for (networks, count) in [(&near, 1), (&far, 1000)] {
            let state = networks.state(None).remove(0);
            assert!(bed::adds_up(&state.counters), "{:?}", state.counters);
            assert_eq!(state.flows[0].received, count);
            assert!(state.flows[0].receive_ns > 0 && state.flows[0].drops.is_empty());
            assert_eq!(state.neighbours[0].state, "reachable");
        }
        assert!(near.state(Some(7))[0].flows.is_empty());
    }
}

#[test]
fn a_client_that_is_dropped_leaves_nothing() {
    // Other tests open files in this process meanwhile, so this one counts those of a process of its own.
    const ALONE: &str = "STREAMLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().expect("the test's name").to_string();
        let program = std::env::current_exe().expect("a test knows its program");
        let mut alone = std::process::Command::new(program);
        let output = alone.args(["--exact", &name]).env(ALONE, "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let files = || std::fs::read_dir("/proc/self/fd").expect("it may be read").count();
    let [near, far] = joined();
    // A thread opens files of its own before it answers.
    assert!(near.state(None).len() == 1 && far.state(None).len() == 1);
    let before = files();
    let mut application = Application::new(&near, 1000);
    let flows: Vec<_> = (0..50).map(|_| application.open(&udp(at(1, 0), None))).collect();
    assert_eq!(near.state(None)[0].flows.len(), 50);
    let named = flows[7].granted.local;
    drop(application);
    assert!(flows.iter().all(|flow| flow.channel.state() == State::Closed(0)));
    assert!(near.state(None)[0].flows.is_empty());
    drop(flows);
    let mut next = Application::new(&near, 1001);
    assert_eq!(next.open(&udp(named, None)).granted.local, named);
    drop(next);
    await_that("every file is closed", || files() <= before);
}

#[test]
fn what_an_application_closed_is_free_for_its_next_flow() {
    let [near, _far] = joined();
    let mut application = Application::new(&near, 1000);
    // A user may have 15 of these: places and channel numbers are released, too.
    let large = OpenFlow { receive_buffers: 1024, buffer_bytes: 65_536, ..udp(at(1, 4000), None) };
    for round in 0..20 {
        let mut flow = application.open(&large);
        assert_eq!(flow.granted.channel, 0, "{round}");
        flow.close();
    }
    let mut flow = application.open(&large);
    flow.close();
    assert!(near.state(None)[0].flows.is_empty());
    assert_eq!(flow.channel.state(), State::Closed(0));
    // Its number now belongs to another flow, which it must not reach.
    let next = application.open(&large);
    flow.close();
    assert_eq!((next.granted.channel, near.state(None)[0].flows.len()), (0, 1));
    assert_eq!(next.channel.state(), State::Open);
}

fn refusal(result: Result<(flow::Granted, Vec<std::os::fd::OwnedFd>), NetError>) -> (NetErrorKind, String) {
    let error = result.expect_err("it is refused");
    (error.kind, error.text)
}

#[test]
fn flows_that_cannot_be_are_refused_with_a_reason() {
    let [near, _far] = joined();
    let mut client = near.client(1, 1000);
    let mut other = near.client(2, 1001);
    // The doorbells of a client that drops them hang up.
    let _held = client.open(&udp(at(1, 4000), None), &no_limits).expect("it is free");
    let mut check = |user: u32, open: &OpenFlow, kind, text: &str| {
        let client = if user == 1000 { &mut client } else { &mut other };
        let (found, says) = refusal(client.open(open, &no_limits));
        assert!(found == kind && says.contains(text), "{found:?}: {says}");
    };
    check(1000, &udp(at(1, 4000), None), NetErrorKind::InUse, "address in use: port 4000");
    check(1001, &udp(at(1, 4000), Some(at(2, 1))), NetErrorKind::InUse, "address in use: port 4000");
    check(1000, &udp(at(1, 53), None), NetErrorKind::Denied, "port 53 is for root");
    check(1000, &udp(at(9, 4001), None), NetErrorKind::Absent, "no interface has the address 10.0.0.9");
    check(1000, &OpenFlow::new(Some("far".into()), 17, at(1, 1), None), NetErrorKind::Absent, "`far` is not up");
    check(1000, &OpenFlow::new(None, 132, at(1, 4001), None), NetErrorKind::Request, "flows are of UDP");
    check(1000, &OpenFlow::new(None, 6, at(1, 4001), None), NetErrorKind::Request, "open a listener");
    let to = |text: &str| Some(text.parse().expect("an address"));
    check(1000, &udp(at(1, 0), to("8.8.8.8:53")), NetErrorKind::Absent, "no interface routes to 8.8.8.8");
    check(1000, &udp(at(1, 0), to("10.0.0.2:0")), NetErrorKind::Request, "the other side's port");
    let device = Some("near".into());
    let multicast = OpenFlow::new(device, 17, at(1, 0), to("224.0.0.1:53"));
    check(1000, &multicast, NetErrorKind::Request, "224.0.0.1 is no address");
    let multicast = OpenFlow::new(Some("near".into()), 17, six(1, 0), to("[ff02::1]:53"));
    check(1000, &multicast, NetErrorKind::Request, "ff02::1 is no address");
    check(1000, &udp(six(9, 4001), None), NetErrorKind::Absent, "no interface has the address fd00::9");
    check(1000, &udp(six(1, 0), to("[2001:db8::1]:53")), NetErrorKind::Absent, "no interface routes to 2001:db8::1");
    check(1000, &udp(six(1, 0), Some(at(2, 53))), NetErrorKind::Request, "fd00::1 and 10.0.0.2 are of two families");
    check(1000, &udp(at(1, 0), Some(six(2, 53))), NetErrorKind::Request, "10.0.0.1 and fd00::2 are of two families");
    // Flows of one user share a port if their remotes differ.
    client.open(&udp(at(1, 4000), Some(at(2, 1))), &no_limits).expect("another remote");
    client.open(&udp(at(1, 4000), Some(at(2, 2))), &no_limits).expect("another remote");
    let (kind, text) = refusal(client.open(&udp(at(1, 4000), Some(at(2, 2))), &no_limits));
    assert!(kind == NetErrorKind::InUse && text.contains("choose another port"), "{text}");
    assert_eq!(client.close(99).expect_err("there is none").kind, NetErrorKind::Absent);
    client.close(0).expect("it is there");
    client.open(&udp(at(1, 4000), None), &no_limits).expect("it is free again");
}

#[test]
fn an_interface_without_addresses_of_a_family_carries_none_of_it() {
    let (networks, threads) = bed::networks_and_starter(None);
    let mut fars = Vec::new();
    for (device, addresses) in [("four", 0..1), ("six", 1..2)] {
        let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
        fars.push(far);
        let open = bed::interface(device, 1);
        let open = flow::OpenInterface { addresses: open.addresses[addresses].to_vec(), ..open };
        threads.give(bed::opened(near, NEAR));
        networks.up(&open).expect("it is sound");
    }
    let any = |text: &str| text.parse().expect("an address");
    let check = |device: Option<&str>, local: &str, expected: Result<&str, &str>| {
        let open = OpenFlow::new(device.map(String::from), 17, any(local), None);
        let opened = networks.client(1, 1000).open(&open, &no_limits);
        match (opened, expected) {
            (Ok((granted, _)), Ok(own)) => assert_eq!(granted.local.ip().to_string(), own, "{device:?} {local}"),
            (Err(error), Err(text)) => assert!(error.text.contains(text), "{device:?} {local}: {error}"),
            (opened, _) => panic!("{device:?} {local}: {opened:?}"),
        }
    };
    check(Some("four"), "0.0.0.0:0", Ok("10.0.0.1"));
    check(Some("four"), "[::]:0", Err("has no address of IPv6"));
    check(Some("six"), "0.0.0.0:0", Ok("fd00::1"));
    check(Some("six"), "[::]:0", Ok("fd00::1"));
    // The only possible interface.
    check(None, "[::]:0", Ok("fd00::1"));
    check(None, "0.0.0.0:0", Ok("10.0.0.1"));
    networks.down("six").expect("it is up");
    check(None, "[::]:0", Err("no interface has an address of IPv6"));
    check(None, "0.0.0.0:0", Ok("10.0.0.1"));
    // Whichever is first.
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    fars.push(far);
    let mut both = bed::interface("both", 2);
    both.addresses.reverse();
    threads.give(bed::opened(near, NEAR));
    networks.up(&both).expect("it is sound");
    check(Some("both"), "0.0.0.0:0", Ok("10.0.0.2"));
    check(None, "0.0.0.0:0", Err("several interfaces are up"));
    check(None, "[::]:0", Ok("fd00::2"));
}

#[test]
fn interfaces_come_up_once_and_go_down_with_their_flows() {
    let (networks, threads) = bed::networks_and_starter(None);
    let mut fars = Vec::new();
    let mut up = |device: &str, last| {
        let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
        fars.push(far);
        threads.give(bed::opened(near, NEAR));
        networks.up(&bed::interface(device, last))
    };
    up("one", 1).expect("it is sound");
    assert_eq!(up("one", 1).expect_err("it is up").kind, NetErrorKind::InUse);
    up("two", 2).expect("it is sound");
    let mut application = Application::new(&networks, 1000);
    let flow = application.open(&udp(at(1, 0), None));
    let (kind, text) = refusal(application.client.open(&udp(at(2, 0), None), &no_limits));
    assert!(kind == NetErrorKind::Request && text.contains("connect again for `two`"), "{text}");
    assert_eq!(networks.down("none").expect_err("there is none").kind, NetErrorKind::Absent);
    networks.down("one").expect("it is up");
    assert_eq!(flow.channel.state(), State::Closed(Errno::NETDOWN.raw_os_error()));
    assert_eq!(networks.state(None).len(), 1);
    // The client may continue elsewhere, with new doorbells.
    assert!(application.open(&udp(at(2, 0), None)).granted.has_bells);
}

#[test]
fn a_device_that_is_removed_ends_its_flows_and_stays_listed() {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let networks = bed::up_on(&bed::interface("near", 1), bed::opened(near, NEAR));
    let mut application = Application::new(&networks, 1000);
    let flow = application.open(&udp(at(1, 0), None));
    drop(far);
    await_that("the flow ends", || flow.channel.state() == State::Closed(Errno::NETDOWN.raw_os_error()));
    let state = networks.state(None).remove(0);
    assert!(state.trouble.is_some_and(|trouble| trouble.contains("removed")));
    let (kind, text) = refusal(application.client.open(&udp(at(1, 0), None), &no_limits));
    assert!(kind == NetErrorKind::Absent && text.contains("removed"), "{text}");
    networks.down("near").expect("it is listed");
    assert!(networks.state(None).is_empty());
}

#[test]
fn an_idle_interface_does_not_wake() {
    let [near, _far] = joined();
    let mut application = Application::new(&near, 1000);
    let _flow = application.open(&udp(at(1, 0), None));
    let turns =
        || near.state(None)[0].counters.iter().find(|(name, _)| name == "thread.turns").map(|(_, turns)| *turns);
    turns();
    let before = turns().expect("it is counted");
    std::thread::sleep(Duration::from_millis(300));
    let after = turns().expect("it is counted");
    assert!(after - before <= 3, "{} turns for one question", after - before);
}

#[test]
fn an_application_that_sleeps_is_woken() {
    let [near, far] = joined();
    let (mut one, mut other) = (Application::new(&near, 1000), Application::new(&far, 1000));
    let mut bound = other.open(&udp(at(2, 4000), None));
    let mut client = one.open(&udp(at(1, 0), Some(at(2, 4000))));
    let waiter = std::thread::spawn(move || {
        let mut count = 0;
        while count < 50 {
            count += received(&mut bound).len();
            if count < 50 && bound.fall_asleep() {
                let mut fds = [rustix::event::PollFd::from_borrowed_fd(bound.fd(), rustix::event::PollFlags::IN)];
                let wait = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(rustix::event::poll(&mut fds, Some(&wait)), Ok(1), "no ring came after {count}");
            }
            bound.awake();
        }
        drop(other);
    });
    for _ in 0..50 {
        let frame = datagram([NEAR, [0; 6]], client.granted.local, at(2, 4000), b"wake up");
        client.send(&[&frame]).expect("there is room");
        std::thread::sleep(Duration::from_millis(1));
    }
    waiter.join().expect("it was woken");
}

#[test]
fn a_client_has_a_quota_and_the_text_says_which() {
    let [near, _far] = joined();
    let mut client = near.client(1, 1000);
    let small =
        OpenFlow { send_records: 1, send_bytes: 4096, receive_buffers: 1, buffer_bytes: 64, ..udp(at(1, 0), None) };
    let flows: Vec<_> = (0..1024).map(|_| client.open(&small, &no_limits).expect("there is room")).collect();
    let (kind, text) = refusal(client.open(&small, &no_limits));
    assert!(kind == NetErrorKind::Full && text.contains("1024 flows"), "{text}");
    client.close(500).expect("it is there");
    assert_eq!(client.open(&small, &no_limits).expect("there is room again").0.channel, 500);
    drop(flows);
}

#[test]
fn each_user_has_limits_of_its_own_for_shares() {
    let (near, _far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let open = flow::OpenInterface { rate: Some(100_000_000), ..bed::interface("near", 1) };
    let networks = bed::up_on(&open, bed::opened(near, NEAR));
    let limits = |device: &str| {
        assert_eq!(device, "near");
        Ok(ShareLimits::default())
    };
    let share = |share: &str| OpenFlow { share: Some(share.into()), ..udp(at(1, 0), None) };
    let mut anna = networks.client(1, 1000);
    let (first, _held) = anna.open(&share("5ms/100ms"), &limits).expect("it is 5 %");
    anna.open(&share("15ms/100ms"), &limits).expect("it is 20 % together");
    let (kind, text) = refusal(anna.open(&share("1ms/100ms+slack"), &limits));
    let expected = "1ms/100ms+slack is 1 % of the wire; user 1000 may guarantee 20 % of `near` to its flows, and other flows of it \
                    have 20 %; root can change that in the daemon's policy (`slices`)";
    assert_eq!((kind, text.as_str()), (NetErrorKind::Full, expected));
    let (kind, text) = refusal(anna.open(&share("fair:11"), &limits));
    assert!(kind == NetErrorKind::Full && text.contains("user 1000 may have weights up to 10"), "{text}");
    anna.open(&share("fair:10"), &limits).expect("it is permitted");
    // Another connection of the same user has the same limit; another user has its own.
    let second = refusal(networks.client(2, 1000).open(&share("1ms/100ms"), &limits));
    assert_eq!(second.0, NetErrorKind::Full);
    let mut others = [(3, 1001), (4, 0)].map(|(process, user)| networks.client(process, user));
    others[0].open(&share("20ms/100ms"), &limits).expect("its own 20 %");
    others[1].open(&share("50ms/100ms"), &no_limits).expect("root has no limit");
    // A change counts without the flow's old share; root may give more.
    let change = |user, share: &str, limits| networks.share(user, first.flow, share, &|_| limits);
    let ordinary = Some(ShareLimits::default());
    change(Some(1000), "4ms/100ms", ordinary).expect("it is less");
    change(Some(1000), "5ms/100ms", ordinary).expect("as before");
    let error = change(Some(1000), "6ms/100ms", ordinary).expect_err("too much");
    assert!(error.kind == NetErrorKind::Full && error.text.contains("have 15 %"), "{error}");
    assert_eq!(change(Some(1000), "1ms/100ms", None).expect_err("no flows there").kind, NetErrorKind::Absent);
    change(None, "10ms/100ms", Some(ShareLimits::NONE)).expect("root may");
}

#[test]
fn what_was_sent_before_a_close_leaves() {
    let [near, far] = joined();
    let (mut one, mut other) = (Application::new(&near, 1000), Application::new(&far, 1000));
    let mut bound = other.open(&udp(at(2, 4000), None));
    let mut client = one.open(&udp(at(1, 5000), Some(at(2, 4000))));
    let frame = datagram([NEAR, [0; 6]], at(1, 5000), at(2, 4000), b"last words");
    client.send(&[&frame]).expect("there is room");
    await_that("the neighbour is known", || !received(&mut bound).is_empty());
    for _ in 0..200 {
        client.channel.send(&[&frame]).expect("there is room");
    }
    one.client.close(0).expect("it is there");
    let mut seen = 0;
    await_that("all arrive", || {
        seen += received(&mut bound).len();
        seen == 200
    });
}

/// The driver only rings for room now and then. An application that sleeps without room must be woken by one of those.
#[test]
fn an_application_that_waits_for_room_is_woken() {
    for (send_records, send_bytes, payload) in
        [(256, 4096, 1400), (4, 1 << 16, 10), (1, 4096, 1400), (256, 1 << 16, 10)]
    {
        let [near, _far] = joined();
        let mut one = Application::new(&near, 1000);
        let open = OpenFlow { send_records, send_bytes, ..udp(at(1, 5000), Some(at(2, 4000))) };
        let mut flow = one.open(&open);
        let frame = datagram([NEAR, [0; 6]], at(1, 5000), at(2, 4000), &vec![0; payload]);
        for number in 0..2000 {
            while flow.send(&[&frame]).is_err() {
                flow.ring();
                // Like an application: it looks again after announcing its sleep.
                if flow.fall_asleep() && flow.send(&[&frame]).is_err() {
                    let mut fds = [rustix::event::PollFd::from_borrowed_fd(flow.fd(), rustix::event::PollFlags::IN)];
                    let wait = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                    let woken = rustix::event::poll(&mut fds, Some(&wait));
                    assert_eq!(woken, Ok(1), "packet {number} of {payload} bytes, {send_records} records");
                }
                flow.awake();
            }
        }
    }
}

/// From listening to the final reset, between two threads.
#[test]
fn a_client_listens_accepts_and_is_reset_when_its_interface_goes_down() {
    for at in FAMILIES {
        let [near, far] = joined();
        let (mut server, mut client) = (Application::new(&near, 1000), Application::new(&far, 1000));
        let open = flow::OpenListener { local: at(1, 8080), ..listener(8080, 16) };
        let (listening, fds) = server.client.listen(&open, &no_limits).expect("nothing is in its way");
        let held = server.host.adopt_listener(listening, fds).expect("it is sound");
        let mut flow = client.open(&connecting(at(2, 4000), at(1, 8080)));
        let names = [at(2, 4000), at(1, 8080)];
        let isn = flow.granted.isn;
        flow.send(&[&Tcp(SYN, isn, 0).frame([FAR, [0; 6]], names, &[], b"")]).expect("there is room");
        let next = |flow: &mut flow::Flow| {
            let mut frames = Vec::new();
            await_that("a segment arrives", || {
                frames.extend(received(flow));
                !frames.is_empty()
            });
            frames
        };
        let Tcp(flags, cookie, _) = Tcp::of(&next(&mut flow)[0]);
        assert_eq!(flags, SYN | ACK);
        let ack = Tcp(ACK, isn.wrapping_add(1), cookie.wrapping_add(1)).frame([FAR, [0; 6]], names, &[], b"hello");
        flow.send(&[&ack]).expect("there is room");
        await_that("the bell rings", || !held.fall_asleep());
        held.awake();
        let geometry = buffer::flow::Geometry::default();
        let (granted, fds) = server.client.accept(held.listening.channel, 16).expect("it is there");
        let mut accepted = server.host.adopt_accepted(granted, geometry, fds).expect("it is sound");
        assert_eq!((accepted.len(), accepted[0].granted.isn, accepted[0].granted.has_bells), (1, cookie, false));
        let first = received(&mut accepted[0]).remove(1);
        assert_eq!(first[headers(&first) + 20..], *b"hello");
        assert!(server.client.accept(held.listening.channel, 16).expect("it is there").0.is_empty());
        assert_eq!(server.client.accept(99, 1).expect_err("there is none").kind, NetErrorKind::Absent);
        near.down("near").expect("it is up");
        assert_eq!(Tcp::of(&next(&mut flow)[0]), Tcp(RST | ACK, cookie.wrapping_add(1), isn.wrapping_add(1)));
        assert_eq!(accepted[0].channel.state(), State::Closed(Errno::NETDOWN.raw_os_error()));
        assert_eq!(server.client.accept(held.listening.channel, 1).expect_err("it is down").kind, NetErrorKind::Absent);
    }
}
