//! A closed device leaves nothing behind. A single test, because it looks at everything the process holds.

use driver::af_packet::{Fanout, FanoutBy, Options, Receiver, Sender, SenderOptions};
use driver::tuntap::{self, TunTap};
use driver::watch::Watch;
use driver::{Receive, af_xdp, device};
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::network::{Pair, may_make_networks};

/// The process's file descriptors, counted by kind, and the number of mapped rings.
fn held() -> (BTreeMap<String, usize>, usize) {
    let mut fds = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("/proc is there") {
        // The descriptor of the folder itself is closed by now.
        let Ok(target) = std::fs::read_link(entry.expect("as above").path()) else { continue };
        let kind = target.to_string_lossy().split(':').next().unwrap_or_default().to_string();
        *fds.entry(kind).or_insert(0) += 1;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("as above");
    let rings = maps.lines().filter(|line| line.contains("socket:") || line.contains("memfd:")).count();
    (fds, rings)
}

#[test]
fn nothing_is_left_of_what_was_closed() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let (namespace, name) = (&pair.near.namespace, pair.near.name.as_str());
    let open_all = || {
        let fanout = Some(Fanout { group: 1, by: FanoutBy::Hash, defragment: false });
        let options = [Options { promiscuous: true, ..Options::default() }, Options { fanout, ..Options::default() }];
        let receivers = options.map(|options| Receiver::open(namespace, name, &options).expect("root may receive"));
        let sender = Sender::open(namespace, name, SenderOptions::default()).expect("root may send");
        let tap = TunTap::open(namespace, &tuntap::Options::default()).expect("root may make devices");
        let xdp = af_xdp::Device::open(namespace, name, af_xdp::Options::default());
        let taken = (tap, xdp.expect("root may take what a device receives"));
        (receivers, sender, taken, Watch::new(namespace).expect("anybody may watch"))
    };
    let before = held();
    for round in 0..3 {
        let (mut receivers, sender, taken, watch) = open_all();
        pair.near.sender().send(&[7; 60]).expect("it is up");
        let mut seen = 0;
        while seen == 0 {
            let take = &mut |batch: driver::Batch<'_>| seen += batch.frames.len();
            receivers[0].receive(Duration::from_secs(20), take).expect("it is there");
        }
        let open = held();
        assert!(open.0["socket"] > *before.0.get("socket").unwrap_or(&0) + 5);
        assert!(open.1 > before.1 + 2);
        assert!(pair.near.link().xdp.is_some());
        drop((receivers, sender, taken, watch));
        assert_eq!(held(), before, "round {round}");
        // A failure to open leaves nothing behind either.
        assert!(Receiver::open(namespace, "no-such", &Options::default()).is_err());
        let endless = driver::Instruction { code: 0x05, jump_true: 0, jump_false: 0, k: u32::MAX };
        let options = Options { filter: vec![endless], ..Options::default() };
        assert!(Receiver::open(namespace, name, &options).is_err());
        assert_eq!(held(), before, "round {round}");
    }
    let link = pair.near.link();
    assert_eq!((link.is_promiscuous(), link.xdp), (false, None));
    assert_eq!(device::list(namespace).expect("anybody may list").len(), 2, "the tap is gone");
}
