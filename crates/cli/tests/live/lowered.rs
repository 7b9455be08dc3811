//! Filters other than expressions in the kernel: they give the same results as in the reader, and the counts add up.

use crate::net::*;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::network::{Pair, may_make_networks, quiet_namespace};

fn explained(request: &str) -> String {
    told(Command::new(PROGRAM).args(["explain", request]))
}

fn told(explain: &mut Command) -> String {
    let output = explain.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn line<'a>(explained: &'a str, filter: &str) -> &'a str {
    let found = explained.lines().find(|line| line.contains(filter));
    found.unwrap_or_else(|| panic!("{filter}: {explained}"))
}

#[test]
fn one_in_so_many_is_taken_where_packets_are() {
    if !may_make_networks() {
        return;
    }
    for by in ["kernel", "socket"] {
        let net = Net::new(None);
        let requests = [
            "ethernet D by=BY | sample 10 | save tenth.pcap",
            "ethernet D by=BY | bpf \"udp port 53\" | sample 7 | save dns.pcap",
            "ethernet D by=BY | bpf \"udp\" | sample 4 | sample 5 | udp | drop",
            "ethernet D by=BY | sample 10 by=flow | save flow.pcap",
        ];
        let requests = requests.map(|request| request.replace("BY", by));
        let readers = net.read(&requests.each_ref().map(String::as_str));
        let frames = traffic(1000);
        send(&net, &frames);
        let matched: Vec<u64> = net.state()["rings"][0]["readers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reader| reader["matched"].as_u64().unwrap())
            .collect();
        // 800 are untagged, 267 of them to port 53.
        let dns: Vec<_> = frames.iter().enumerate().filter(|(at, _)| at % 3 == 0 && at % 5 != 0).collect();
        let dns: Vec<_> = dns.iter().step_by(7).map(|(_, frame)| *frame).collect();
        assert_eq!(matched, [100, dns.len() as u64, 40, 1000], "by {by}");
        let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
        let reports: Vec<Value> = outputs.iter().map(succeeded).collect();
        let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        assert!(got("tenth.pcap").iter().eq(frames.iter().step_by(10)), "by {by}");
        assert!(got("dns.pcap").iter().eq(dns), "by {by}");
        for (report, matched) in reports.iter().zip(&matched) {
            let source = &report["filters"][0];
            assert_eq!(source["events"]["seen on the device"], 1000, "{report}");
            assert_eq!((&source["blocks_in"], &source["blocks_taken"]), (&json!(matched), &json!(matched)), "{report}");
        }
    }
}

#[test]
fn packets_that_are_only_counted_are_never_copied() {
    if !may_make_networks() {
        return;
    }
    for by in ["kernel", "socket"] {
        let net = Net::new(None);
        let requests = [
            "ethernet D by=BY | count",
            "ethernet D by=BY snaplen=100 | bpf \"udp port 53\" | count",
            "ethernet D by=BY direction=in | bpf \"vlan\" | sample 3 | count",
            "{ ethernet D by=BY + ethernet D by=BY | bpf \"vlan\" } | count",
        ];
        let requests = requests.map(|request| request.replace("BY", by));
        let mut readers = net.read(&requests[..3].iter().map(String::as_str).collect::<Vec<_>>());
        readers.push(Running::start(net.request(&requests[3])));
        until("both of the last's ways are open", || net.readers() == 5);
        let frames = traffic(1000);
        send(&net, &frames);
        assert_eq!(net.state()["rings"][0]["written"], 0, "by {by}");
        // The same filters above, on a file.
        let sums = |wanted: &dyn Fn(usize) -> bool, step: usize, snap_len: usize| -> [usize; 3] {
            let wanted = frames.iter().enumerate().filter(|(at, _)| wanted(*at)).step_by(step);
            wanted.fold([0; 3], |[blocks, bytes, wire], (_, frame)| {
                [blocks + 1, bytes + frame.len().min(snap_len), wire + frame.len()]
            })
        };
        let (all, vlan) = (sums(&|_| true, 1, 70_000), sums(&|at| at % 5 == 0, 1, 70_000));
        let expected = [
            all,
            sums(&|at| at % 3 == 0 && at % 5 != 0, 1, 100),
            sums(&|at| at % 5 == 0, 3, 70_000),
            [0, 1, 2].map(|at| all[at] + vlan[at]),
        ];
        for (reader, [blocks, bytes, wire]) in readers.into_iter().zip(expected) {
            let output = reader.interrupt();
            let report = succeeded(&output);
            let said = format!("{{\"blocks\":{blocks},\"bytes\":{bytes},\"wire_bytes\":{wire}}}\n");
            assert_eq!(String::from_utf8_lossy(&output.stdout), said, "by {by}");
            let source = &report["filters"][0];
            assert_eq!((&source["blocks_in"], &source["blocks_taken"]), (&json!(blocks), &json!(blocks)), "{report}");
        }
    }
}

#[test]
fn what_nobody_wants_of_a_packet_socket_is_not_copied() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let ring = |net: &Net| net.state()["rings"][0].clone();
    let frames = traffic(300);
    let mut far = net.pair.far.sender();
    let mut near = net.pair.near.sender();
    // Ports 53, 80 and 4789 in turn. Each fifth frame has a tag: for an expression it has no port.
    let mut first = net.read(&["ethernet D by=socket direction=in | bpf \"udp port 53\" | save dns.pcap"]);
    let mut sent = 0;
    let mut send = |sender: &mut testkit::network::FrameSender| {
        frames.iter().for_each(|frame| sender.send(frame).unwrap());
        sent += 300;
        until("all are seen", || ring(&net)["seen"].as_u64() >= Some(sent));
    };
    send(&mut far);
    let mut second = net.read(&["ethernet D by=socket | bpf \"udp port 80\" | save web.pcap"]);
    send(&mut far);
    send(&mut near);
    succeeded(&first.remove(0).interrupt());
    until("one reads", || net.readers() == 1);
    send(&mut far);
    assert_eq!(ring(&net)["seen"], 1200);
    // Wanted packets came through the socket: 80, 160, 80 and 80.
    until("the books are open", || ring(&net)["statistics"]["receiver.given"].as_u64() >= Some(400));
    let statistics = &ring(&net)["statistics"];
    assert_eq!(
        (&statistics["receiver.seen"], &statistics["socket.kept_out"]),
        (&json!(400), &json!(800)),
        "{statistics}"
    );
    let report = succeeded(&second.remove(0).interrupt());
    assert_eq!(report["filters"][0]["events"]["seen on the device"], 900, "{report}");
    let of_port = |port: [u8; 2]| frames.iter().filter(move |frame| frame[12] == 8 && frame[36..38] == port);
    let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert!(got("dns.pcap").iter().eq(of_port([0, 53]).chain(of_port([0, 53]))), "{} of 160", got("dns.pcap").len());
    let web = of_port([0, 80]).chain(of_port([0, 80])).chain(of_port([0, 80]));
    assert!(got("web.pcap").iter().eq(web), "{} of 240", got("web.pcap").len());
}

#[test]
fn a_device_of_ones_own_is_left_what_an_expression_does_not_want() {
    if !may_make_networks() {
        return;
    }
    for place in ["driver", "generic"] {
        let net = Net::new(None);
        let host = net.read(&["ethernet D direction=in | save host.pcap"]).remove(0);
        let request = "af_xdp D place=PLACE | bpf \"udp port 53\" | { save dns.pcap + head 1 | inspect }";
        let command = |request: &str| {
            let mut command = Command::new(PROGRAM);
            command.args(["run", "--local", "--stats", "json"]);
            command.arg(request.replace("PLACE", place).replace('D', net.device()));
            command
        };
        let mut reader = net.there(command(request));
        let mut far = net.pair.far.sender();
        let mut line = BufReader::new(reader.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let (said, hears) = channel();
        std::thread::spawn(move || said.send(line.next()));
        // This frame only shows whether the reader takes packets.
        until("it takes what it wants", || {
            far.send(&datagram(u32::MAX, 53, 60)).unwrap();
            hears.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        let second = net.there(command("af_xdp D | drop")).end();
        let (error, attached) = (String::from_utf8_lossy(&second.stderr), net.pair.near.link().xdp.unwrap().program);
        assert!(error.contains(&format!("XDP program {attached} (`streamline_xdp`) is attached")), "{error}");
        let two = "af_xdp other | { bpf \"udp port 53\" | drop + bpf \"udp port 80\" | drop }";
        let other = Pair::named([(&net.pair.near.namespace, "other"), (&quiet_namespace(), "end")], 1).unwrap();
        let both = net.there(command(two));
        until("it is taken", || other.near.link().xdp.is_some());
        let report = succeeded(&both.interrupt());
        let spaces = ["kernel", "app", "app"].map(|space| json!(space));
        assert!((0..3).all(|at| report["filters"][at]["space"] == spaces[at]), "{report}");
        let seen = || net.state()["rings"][0]["seen"].as_u64().unwrap();
        let frames = traffic(300);
        let (dns, rest): (Vec<_>, Vec<_>) =
            frames.iter().cloned().partition(|frame| frame[12] == 8 && frame[36..38] == [0, 53]);
        assert_eq!(dns.len(), 80);
        let before = seen();
        frames.iter().for_each(|frame| far.send(frame).unwrap());
        until("the host has the rest", || seen() >= before + rest.len() as u64);
        let report = succeeded(&reader.interrupt());
        host.interrupt();
        let got = |file: &str| -> Vec<Vec<u8>> {
            let all = packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes);
            all.filter(|frame| frame[42..46] != [0xff; 4]).collect()
        };
        assert!(got("dns.pcap") == dns, "{place}: {} of 80", got("dns.pcap").len());
        assert!(got("host.pcap") == rest, "{place}: {} of 220", got("host.pcap").len());
        let source = &report["filters"][0];
        assert_eq!(source["space"], "kernel", "{report}");
        assert!(source["events"]["left to the host"].as_u64() >= Some(220), "{report}");
    }
}

#[test]
fn of_a_device_of_ones_own_comes_what_any_branch_wants() {
    if !may_make_networks() {
        return;
    }
    let (pair, folder) = (Pair::new(), tempfile::tempdir().unwrap());
    let mut far = pair.far.sender();
    for (source, word) in [
        ("af_packet near", "kept out of the socket"),
        ("af_xdp near", "left to the host"),
        ("af_xdp near place=generic", "left to the host"),
    ] {
        let save = |port: u16| format!("bpf \"udp port {port}\" | save {port}.pcap overwrite=yes");
        // One print shows that the reader has begun, another that all packets have come. The latter needs the whole chain.
        let begins = "bpf \"udp port 53\" | head 1 | inspect";
        let last = "bpf \"udp\" | bpf \"port 9999\" | head 1 | inspect";
        let request = format!("{source} | {{ {} + {} + {begins} + {last} }}", save(53), save(80));
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--local", "--stats", "json", &request]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut reader = pair.near.namespace.enter(move || Running::start(command)).unwrap();
        let lines = BufReader::new(reader.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let (said, hears) = channel();
        std::thread::spawn(move || lines.for_each(|line| drop(said.send(line))));
        until("it hears what it wants", || {
            far.send(&datagram(u32::MAX, 53, 60)).unwrap();
            hears.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        let frames = traffic(300);
        frames.iter().chain([&datagram(1, 9999, 60)]).for_each(|frame| far.send(frame).unwrap());
        assert!(hears.recv_timeout(LONG).unwrap().unwrap().contains("9999"), "{source}");
        let report = succeeded(&reader.interrupt());
        let source_of = &report["filters"][0];
        assert_eq!((&source_of["space"], &source_of["events"][word]), (&json!("kernel"), &json!(140)), "{report}");
        for port in [53u16, 80] {
            let got: Vec<Vec<u8>> =
                packets(&folder.path().join(format!("{port}.pcap"))).into_iter().map(|(_, bytes)| bytes).collect();
            let got = got.iter().filter(|frame| frame[42..46] != [0xff; 4]);
            let wanted = frames.iter().filter(|frame| frame[12] == 8 && frame[36..38] == port.to_be_bytes());
            assert!(got.clone().eq(wanted), "{source}, {port}: {} of 80", got.count());
        }
    }
}

#[test]
fn a_packet_socket_of_ones_own_lets_in_what_an_expression_wants() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let (mut far, mut near) = (pair.far.sender(), pair.near.sender());
    // A socket that wants no outgoing packets does not get them. Its filter drops received ones that it does not want.
    for (options, wanted, least) in [("", 2, 440), ("direction=in", 1, 220), ("direction=out", 1, 520)] {
        let mut command = Command::new(PROGRAM);
        // All wanted frames but the first are longer than 60 bytes. The request ends once it has them.
        let saved = format!("bpf \"greater 61\" | head {} | save dns.pcap overwrite=yes", 80 * wanted);
        let request = format!("af_packet near {options} | bpf \"udp port 53\" | {{ head 1 | inspect + {saved} }}");
        command.args(["run", "--local", "--stats", "json", &request]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut reader = pair.near.namespace.enter(move || Running::start(command)).unwrap();
        let mut line = BufReader::new(reader.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let (said, hears) = channel();
        std::thread::spawn(move || said.send(line.next()));
        until("it hears what it wants", || {
            far.send(&datagram(u32::MAX, 53, 60)).unwrap();
            near.send(&datagram(u32::MAX, 53, 60)).unwrap();
            hears.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        let frames = traffic(300);
        frames.iter().for_each(|frame| far.send(frame).unwrap());
        frames.iter().for_each(|frame| near.send(frame).unwrap());
        until("it has got what it wants", || reader.has_ended());
        let report = succeeded(&reader.end());
        let got: Vec<Vec<u8>> = packets(&folder.path().join("dns.pcap")).into_iter().map(|(_, bytes)| bytes).collect();
        let dns: Vec<_> = frames.into_iter().filter(|frame| frame[12] == 8 && frame[36..38] == [0, 53]).collect();
        assert_eq!(got.len(), 80 * wanted, "{options}");
        assert!(got.chunks(80).all(|part| part == dns), "{options}");
        let source = &report["filters"][0];
        assert_eq!(source["space"], "kernel", "{report}");
        let kept_out = source["events"]["kept out of the socket"].as_u64();
        assert!(kept_out >= Some(least), "{options}: {report}");
    }
}

#[test]
fn ports_are_known_where_packets_are_and_mean_what_they_mean_above() {
    if !may_make_networks() {
        return;
    }
    // Besides plain and tagged frames: frames with two tags, and the first fragment of a datagram.
    let frames: Vec<Vec<u8>> = traffic(400)
        .into_iter()
        .enumerate()
        .map(|(at, mut frame)| match at % 7 {
            3 => tagged(tagged(frame, 5), 6),
            5 if frame[12] == 8 => {
                frame[20] |= 0x20;
                frame
            }
            _ => frame,
        })
        .collect();
    for by in ["kernel", "socket"] {
        let net = Net::new(None);
        let all = format!("ethernet D by={by} | save all.pcap");
        // (name of the saved files, request)
        let ways: Vec<(String, &str)> = [
            "port 53 | S",
            "port |80 S",
            "port |!53 S",
            "sourceport | S",
            "bpf \"udp\" | destport 80 | S",
            "sample 3 | port 53 | S",
            "port |53 bpf \"udp\" | S",
            "port 53 or port 80 | S",
        ]
        .into_iter()
        .enumerate()
        .map(|(at, way)| (format!("{at}.pcap"), way))
        .collect();
        let of =
            |source: &str, file: &str, way: &str| format!("{source} | {}", way.replace('S', &format!("save {file}")));
        let mut requests = vec![all];
        requests.extend(ways.iter().map(|(file, way)| of(&format!("ethernet D by={by}"), file, way)));
        let readers = net.read(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        send(&net, &frames);
        let reports: Vec<Value> = readers.into_iter().map(|reader| succeeded(&reader.interrupt())).collect();
        assert_eq!(packets(&net.path("all.pcap")).len(), frames.len(), "by {by}");
        let place = if by == "kernel" { "kernel" } else { "daemon" };
        for ((file, way), report) in ways.iter().zip(&reports[1..]) {
            let mut above = Command::new(PROGRAM);
            above.args(["run", "--local", &of("pcap all.pcap", &format!("above-{file}"), way)]);
            assert!(net.there(above).end().status.success());
            let above = packets(&net.path(&format!("above-{file}")));
            assert!(
                !above.is_empty() && above.len() < frames.len() || way.starts_with("source"),
                "{way}: {}",
                above.len()
            );
            assert!(packets(&net.path(file)) == above, "by {by}: {way}: {report}");
            let source = &report["filters"][0];
            assert!(source["filter"].as_str().unwrap().contains("port"), "{source}");
            assert_eq!(source["space"], place, "{source}");
        }
    }
}

#[test]
fn devices_of_both_spaces_meet_above_them() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let both = "{ ethernet D by=kernel + ethernet D by=socket }";
    let requests = [
        format!("{both} | bpf \"udp\" | count"),
        format!("{both} | port 53 | count"),
        format!("{both} | sample 2 | count"),
        "{ ethernet D by=kernel | bpf \"udp\" + ethernet D by=socket | bpf \"udp\" } | port |53 count".to_string(),
    ];
    let mut readers = Vec::new();
    for request in &requests {
        readers.push(Running::start(net.request(request)));
        until("both of its devices are read", || net.readers() == 2 * readers.len());
    }
    let frames: Vec<Vec<u8>> = (0..300).map(|number| datagram(number, 53, 100)).collect();
    send(&net, &frames);
    for ((reader, request), count) in readers.into_iter().zip(&requests).zip([600, 600, 300, 600]) {
        let output = reader.interrupt();
        let report = succeeded(&output);
        let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counted["blocks"], count, "{request}: {report}");
    }
}

#[test]
fn what_a_thread_of_the_daemon_copies_runs_in_the_daemon() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let explained = |request: &str| {
        let request = request.replace('D', net.device());
        told(Command::new(PROGRAM).args(["explain", "--daemon"]).arg(net.socket()).arg(request))
    };
    let copied = explained("ethernet D by=socket | bpf \"udp\" | sample 2 | count");
    for filter in ["ethernet", "bpf", "sample", "count"] {
        assert!(line(&copied, filter).contains("daemon  runs as early"), "{copied}");
    }
    assert!(line(&copied, "ethernet").contains("(kernel: its packets are copied"), "{copied}");
    let refused = explained("ethernet D by=socket | bpf \"ip6 protochain 6\" | drop");
    assert!(line(&refused, "bpf").contains("app     runs as early as possible (daemon: "), "{refused}");
    let written = explained("ethernet D | bpf \"udp\" | { count + tcp | drop }");
    assert!(line(&written, "count").contains("kernel  runs as early") && !written.contains("daemon"), "{written}");
    // Each space reports the packets that it does not hand up.
    let meeting = explained("{ ethernet D by=kernel + ethernet D by=socket } | udp | drop");
    for space in ["kernel", "daemon"] {
        let stays = format!("packets it certainly cannot use are filtered in the {space}");
        assert_eq!(meeting.matches(&stays).count(), 1, "{meeting}");
    }
    // If the kernel cuts outgoing packets, the reader need not.
    let mut made = Command::new(PROGRAM);
    made.args(["run", "--local", "tuntap made0 | drop"]);
    let made = net.there(made);
    until("the device is there", || explained("ethernet made0 | count").contains("daemon"));
    let copied = explained("ethernet made0 | bpf \"udp\" | count");
    assert!(line(&copied, "ethernet").contains("the kernel cuts what is sent"), "{copied}");
    assert!(line(&copied, "count").contains("daemon  runs as early"), "{copied}");
    drop(made.interrupt());
    // The request runs as placed. If one of its steps fails, it leaves nothing there.
    let reader = net.read(&["ethernet D by=socket | bpf \"udp port 53\" | sample 7 | count"]).pop().unwrap();
    let frames = traffic(300);
    send(&net, &frames);
    let report = succeeded(&reader.interrupt());
    let dns = (0..300).filter(|at| at % 3 == 0 && at % 5 != 0).step_by(7).count();
    let source = &report["filters"][0];
    assert_eq!((&source["space"], &source["blocks_in"]), (&json!("daemon"), &json!(dns)), "{report}");
    let output =
        net.request("{ ethernet nowhere by=socket | bpf tcp + ethernet D by=socket } | drop").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    until("nothing is left", || net.readers() == 0);
}

#[test]
fn who_counts_says_what_it_counted_when_its_device_goes() {
    if !may_make_networks() {
        return;
    }
    let mut net = Net::new(None);
    let reader = net.read(&["ethernet D | count"]).pop().unwrap();
    send(&net, &traffic(10));
    drop(net.daemon.take().unwrap().interrupt());
    let output = reader.end();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("has ended: the daemon has ended"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("{\"blocks\":10,"), "{output:?}");
}

#[test]
fn what_cannot_be_counted_in_the_kernel_is_counted_above() {
    let sampled = explained("ethernet v1 | bpf \"tcp\" | sample 10 | tcp | drop");
    assert!(line(&sampled, "sample 10").contains("kernel  runs as early"), "{sampled}");
    assert!(!line(&sampled, "tcp  ").contains("filtered in the kernel"), "{sampled}");
    let check = |request: &str, filter: &str, why: &str| {
        let explained = explained(request);
        let line = line(&explained, filter);
        assert!(line.contains("app ") && line.contains(why), "{explained}");
    };
    check("ethernet v1 | sample 10 by=flow | drop", "sample", "which flows pass");
    check("ethernet v1 | sample 4294967296 | drop", "sample", "up to 4,294,967,295");
    check("ethernet v1@0/4 | sample 10 | drop", "sample", "chosen by the reader");
    let counted = explained("ethernet v1 snaplen=64 | bpf \"tcp\" | sample 10 | count");
    assert!(line(&counted, "count").contains("kernel  runs as early"), "{counted}");
    let own = explained("af_xdp v1 | bpf \"tcp\" | tcp | drop");
    assert!(line(&own, "bpf").contains("kernel  runs as early"), "{own}");
    assert!(!line(&own, "tcp  ").contains("filtered in the kernel"), "{own}");
    let own = explained("af_packet v1 | bpf \"tcp\" | drop");
    // A user who may load no programs has the socket without one.
    let place = if kernel::SocketFilter::new(true).is_ok() { "kernel  runs as early" } else { "app     runs as early" };
    assert!(line(&own, "bpf").contains(place), "{own}");
    check("af_xdp v1 | bpf \"tcp\" | count", "count", "only chooses what is taken");
    for source in ["af_xdp v1", "ethernet v1 mode=consume everything=yes"] {
        let taken = explained(&format!("{source} | {{ tcp | drop + bpf \"ip6 protochain 6\" | drop }}"));
        assert!(!taken.contains("cannot use"), "{taken}");
        let taken = explained(&format!("{source} | bpf \"ip6 protochain 6\" | drop"));
        assert!(line(&taken, "bpf").contains("packets it certainly cannot use are left to the host"), "{taken}");
    }
    let branches = explained("af_xdp v1 | { bpf \"tcp\" | drop + bpf \"udp\" and port 53 | drop }");
    for filter in ["bpf tcp", "bpf udp"] {
        assert!(line(&branches, filter).contains("packets that no branch can use are left to the host"), "{branches}");
    }
    let branches = explained("ethernet v1 | { tcp | drop + inspect }");
    assert!(!branches.contains("cannot use"), "whoever looks at everything wants everything: {branches}");
    check("ethernet v1 by=socket | bpf \"ip6 protochain 6\" | drop", "bpf", "follows a chain of headers");
    let ports: Vec<String> = (0..400).map(|port| format!("port {port}")).collect();
    check(&format!("ethernet v1 | bpf \"{}\" | drop", ports.join(" or ")), "bpf", "instructions; at most 16384");
    check("af_xdp v1 | sample 3 | drop", "sample", "only chooses what is taken");
    check("ethernet v1@0/4 | count", "count", "chosen by the reader");
    check("ethernet v1 last=3s | bpf \"tcp\" | count", "count", "looked at by the reader");
    check("ethernet v1 | count | sample 2", "sample", "has no records");
    check("ethernet v1 | tcp | count", "count", "runs as early");
    check("ethernet v1 last=3s | sample 10 | drop", "sample", "looked at by the reader");
    check("ethernet v1 | sample 10 | bpf \"tcp\" | drop", "bpf", "before it takes one in so many");
    let ports = explained("ethernet v1 | sample 3 | port |80 tcp | drop");
    assert!(
        line(&ports, "port").contains("the reader decides about packets that the program cannot tell about"),
        "{ports}"
    );
    check("ethernet v1 | port |80 bpf \"tcp\" | drop", "bpf", "it does not know the class");
    check("ethernet v1 | port 80 | sample 3 | drop", "sample", "that a program cannot tell about");
    check("ethernet v1 | sample 3 | port 80 | count", "count", "that a program cannot tell about");
    check("ethernet v1 | not { port |80 bpf \"tcp\" } | count", "not {", "it does not know the class");
    let exact = explained("ethernet v1 | not bpf \"tcp\" or ether 02:00:00:00:00:01 | sample 3 | count");
    assert!(line(&exact, "sample").contains("kernel  runs as early") && !exact.contains("the reader"), "{exact}");
    let whole = explained("ethernet v1 | not { host 10.0.0.1 or vlan } | count");
    assert!(line(&whole, "count").contains("kernel  runs as early"), "{whole}");
    let whole = line(&whole, "not { host 10.0.0.1 or vlan }");
    assert!(whole.contains("kernel  runs as early") && whole.contains("the reader decides"), "{whole}");
    let own = explained("af_xdp v1 | not { host 10.0.0.1 or vlan } | drop");
    assert!(line(&own, "not {").contains("packets it certainly cannot use are left to the host"), "{own}");
    check("ethernet v1 snaplen=60 | port 80 | drop", "port", "decides by what is left");
    check("af_xdp v1 | port 80 | drop", "port", "only chooses what is taken");
}
