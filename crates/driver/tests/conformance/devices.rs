//! The devices the suite is run on.

use crate::bed::{Bed, Subject, Wanted};
use driver::af_packet::options::BLOCK_BYTES_MIN;
use driver::af_packet::{Direction, Options, Receiver, Sender, SenderOptions};
use driver::change::Change;
use std::time::Duration;
use testkit::network::{End, Pair, may_make_networks};

fn absent_without_privileges() -> Option<String> {
    (!may_make_networks()).then(|| "no networks can be made here".into())
}

/// Frames that come out of the other end of a pair.
fn observer(end: &End) -> Receiver {
    let options = Options { direction: Direction::In, block_timeout: Duration::from_millis(1), ..Options::default() };
    Receiver::open(&end.namespace, &end.name, &options).expect("root may observe")
}

/// A pair as it is wanted.
fn pair(wanted: &Wanted) -> Pair {
    let pair = Pair::new();
    if let Some(mtu) = wanted.mtu {
        let change = Change { mtu: Some(mtu), ..Change::default() };
        pair.near.change(&change);
        pair.far.change(&change);
    }
    pair
}

/// A packet socket on one end of a pair.
pub fn af_packet() -> Subject {
    let open = |wanted: &Wanted| {
        let pair = pair(wanted);
        if wanted.down {
            pair.near.set_up(false);
        }
        let mut options =
            Options { block_timeout: Duration::from_millis(1), promiscuous: wanted.promiscuous, ..Options::default() };
        if wanted.small {
            (options.block_bytes, options.block_count) = (BLOCK_BYTES_MIN, 2);
        }
        if let Some(filter) = &wanted.filter {
            options.filter.clone_from(filter);
        }
        let (namespace, name) = (&pair.near.namespace, pair.near.name.as_str());
        let mut injector = pair.far.sender();
        Bed {
            receiver: Box::new(Receiver::open(namespace, name, &options).expect("root may receive")),
            sender: Box::new(Sender::open(namespace, name, SenderOptions::default()).expect("root may send")),
            inject: Box::new(move |frame| injector.send(frame).expect("the other end is up")),
            observer: Box::new(observer(&pair.far)),
            device: Some(pair.near),
        }
    };
    Subject { open, cannot: &[], absent: absent_without_privileges() }
}
