//! Neighbour Discovery (RFC 4861) with neighbours that are honest, mistaken and hostile.

use super::bed::{Bed, FAR, NEAR, answer, ndp_frame, outgoing, payload, seal_transport, six, udp};
use crate::limits::{ARP_FRESH, ARP_LOCKED, SECOND};
use packet::ndp::{self, OVERRIDE, SOLICITED};
use std::net::Ipv6Addr;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

/// Another neighbour.
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// The link-local address of the interface.
const LINK_LOCAL: &str = "fe80::ff:fe00:1";

fn ip(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// A question for the owner of `target`, from the far side.
fn solicitation(target: &str) -> Vec<u8> {
    let group = ndp::solicited_node(ip(target));
    ndp_frame([FAR, ndp::group_mac(group)], "fd00::2", &group.to_string(), &ndp::solicitation(ip(target), FAR))
}

/// The interface's answer that it has `own`.
fn answered(own: &str, to: &str, mac: [u8; 6], flags: u8) -> Vec<u8> {
    ndp_frame([NEAR, mac], own, to, &ndp::advertisement(flags, ip(own), NEAR))
}

#[test]
fn questions_for_own_addresses_are_answered_and_teach_nothing() {
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    let probe = |target: &str| {
        let group = ndp::solicited_node(ip(target));
        ndp_frame([FAR, ndp::group_mac(group)], "::", &group.to_string(), &ndp::probe(ip(target)))
    };
    let bare = ndp_frame(WIRE, "fd00::2", "fd00::1", &ndp::probe(ip("fd00::1")));
    let own = "fd00::1";
    let rows = [
        (solicitation(own), answered(own, "fd00::2", FAR, SOLICITED | OVERRIDE)),
        (solicitation(LINK_LOCAL), answered(LINK_LOCAL, "fd00::2", FAR, SOLICITED | OVERRIDE)),
        // A check whether it is still there: without the group, and perhaps without the hardware address (RFC 4861 4.3).
        (bare, answered(own, "fd00::2", FAR, SOLICITED | OVERRIDE)),
        // A neighbour that asks before it takes the address has no address for an answer (RFC 4861 7.2.4).
        (probe(own), answered(own, "ff02::1", all_nodes, OVERRIDE)),
    ];
    let mut bed = Bed::new();
    for (number, (question, expected)) in rows.into_iter().enumerate() {
        bed.give(&question);
        assert_eq!(bed.sent(), [expected], "row {number}");
    }
    assert!(bed.interface.core.neighbours.state(bed.now).is_empty());
    assert_eq!(bed.ends(), [("ndp_answered".to_string(), 4)]);
    for _ in 0..400 {
        bed.give(&solicitation(own));
    }
    assert_eq!((bed.sent().len(), bed.counter("ended.ndp_over_limit")), (96, 304));
}

#[test]
fn what_is_wrong_or_not_for_this_side_is_counted_and_not_answered() {
    // The neighbour is known, so that a forged message could change something.
    let mut bed = Bed::new();
    let mut flow = bed.open(5, &udp(six(1, 4000), Some(six(2, 4000))));
    bed.introduce(&mut flow);
    let before = bed.counter("ended.ndp_learnt");
    let mut check = |message: &str, frame: &[u8], end: &str| {
        let name = format!("ended.{end}");
        let counted = bed.counter(&name);
        bed.now += 2 * ARP_LOCKED;
        bed.give(frame);
        assert_eq!(bed.counter(&name), counted + 1, "{message}: {:?}", bed.ends());
        assert!(bed.sent().is_empty(), "{message}");
        let known = bed.interface.core.neighbours.known(six(2, 0).ip());
        assert_eq!(known, Some(FAR), "{message}");
    };
    let own = ip("fd00::1");
    let question = ndp::solicitation(own, FAR);
    let with = |frame: Vec<u8>, at: usize, byte: u8| {
        let mut frame = frame;
        frame[at] = byte;
        seal_transport(&mut frame);
        frame
    };
    check("from beyond a router", &with(solicitation("fd00::1"), 21, 254), "ndp_malformed");
    check("another code", &with(solicitation("fd00::1"), 55, 1), "ndp_malformed");
    check("an option of no length", &with(solicitation("fd00::1"), 79, 0), "ndp_malformed");
    check("an option beyond the end", &with(solicitation("fd00::1"), 79, 2), "ndp_malformed");
    check("a cut option", &ndp_frame(WIRE, "fd00::2", "fd00::1", &question[..31]), "ndp_malformed");
    check("a cut message", &ndp_frame(WIRE, "fd00::2", "fd00::1", &question[..20]), "ndp_malformed");
    let about_group = ndp::solicitation(ip("ff02::1"), FAR);
    check("about a group", &ndp_frame(WIRE, "fd00::2", "fd00::1", &about_group), "ndp_malformed");
    let group = ndp::solicited_node(own);
    let to_group = [FAR, ndp::group_mac(group)];
    check("a probe with an address", &ndp_frame(to_group, "::", &group.to_string(), &question), "ndp_malformed");
    let to_all = [FAR, ndp::group_mac(ndp::ALL_NODES)];
    check("a probe of all", &ndp_frame(to_all, "::", "ff02::1", &ndp::probe(own)), "ndp_malformed");
    let tells = |flags: u8, mac: [u8; 6]| ndp::advertisement(flags, ip("fd00::2"), mac);
    let to_all = [OTHER, ndp::group_mac(ndp::ALL_NODES)];
    check("an answer to all", &ndp_frame(to_all, "fd00::2", "ff02::1", &tells(0x60, OTHER)), "ndp_malformed");
    let mut broken = solicitation("fd00::1");
    broken[60] ^= 1;
    check("a wrong checksum", &broken, "icmp_malformed");
    check("for another", &ndp_frame(WIRE, "fd00::2", "fd00::1", &ndp::probe(ip("fd00::9"))), "ndp_ignored");
    check("for another's group", &solicitation("fd00::9"), "multicast");
    let lie = ndp::solicitation(own, OTHER);
    check("a question of another", &ndp_frame(WIRE, "fd00::2", "fd00::1", &lie), "ndp_ignored");
    let other = [OTHER, NEAR];
    check("a lie about a neighbour", &ndp_frame(WIRE, "fd00::2", "fd00::1", &tells(0x60, OTHER)), "ndp_ignored");
    check("does not replace", &ndp_frame(other, "fd00::2", "fd00::1", &tells(SOLICITED, OTHER)), "ndp_ignored");
    check("nothing new", &ndp_frame(WIRE, "fd00::2", "fd00::1", &tells(OVERRIDE, FAR)), "ndp_ignored");
    let unasked = ndp::advertisement(0x60, ip("fd00::9"), OTHER);
    check("never asked for", &ndp_frame(other, "fd00::9", "fd00::1", &unasked), "ndp_ignored");
    let ours = ndp::advertisement(OVERRIDE, own, OTHER);
    check("our address", &ndp_frame(other, "fd00::2", "fd00::1", &ours), "ndp_conflict");
    check("from our address", &ndp_frame(other, "fd00::1", "ff02::1", &ours), "ndp_conflict");
    // The prefix and the router in it are ignored.
    let router = [&[ndp::ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8][..], &[0; 8]].concat();
    check("a router", &ndp_frame(WIRE, "fe80::2", "ff02::1", &router), "ndp_router_advertisement");
    check("a router far away", &with(ndp_frame(WIRE, "fe80::2", "ff02::1", &router), 21, 64), "ndp_malformed");
    for (name, kind) in [("who seeks a router", ndp::ROUTER_SOLICITATION), ("a redirect", ndp::REDIRECT)] {
        let message = [&[kind, 0, 0, 0][..], &[0; 36]].concat();
        check(name, &ndp_frame(WIRE, "fe80::2", "fd00::1", &message), "ndp_ignored");
    }
    // RFC 6980 5: also if it is a lone fragment.
    let whole = ndp_frame(WIRE, "fd00::2", "fd00::1", &question);
    let mut piece = [&whole[..54], &[58, 0, 0, 0, 0, 0, 0, 7], &whole[54..]].concat();
    (piece[19], piece[20]) = (piece[19] + 8, 44);
    check("in a piece", &piece, "ndp_malformed");
    assert_eq!((bed.counter("ended.ndp_learnt"), before), (1, 1));
    bed.ends();
}

#[test]
fn a_neighbour_that_changes_its_hardware_says_so_and_one_that_is_silent_is_asked_again() {
    let mut bed = Bed::new();
    let mut flow = bed.open(5, &udp(six(1, 4000), Some(six(2, 4000))));
    bed.introduce(&mut flow);
    let mut sends = |bed: &mut Bed| {
        flow.send(&[&outgoing(six(1, 4000), six(2, 4000), b"where?")]).expect("there is room");
        bed.sent()
    };
    let tells =
        |flags| ndp_frame([OTHER, NEAR], "fd00::2", "fd00::1", &ndp::advertisement(flags, ip("fd00::2"), OTHER));
    // Too soon after the last answer.
    bed.give(&tells(SOLICITED | OVERRIDE));
    assert_eq!(sends(&mut bed)[0][..6], FAR);
    bed.now += ARP_LOCKED;
    bed.give(&tells(OVERRIDE));
    assert_eq!(sends(&mut bed)[0][..6], OTHER);
    // A question of a known neighbour also tells its address (RFC 4861 7.2.3).
    bed.now += ARP_LOCKED;
    bed.give(&solicitation("fd00::1"));
    bed.sent();
    assert_eq!(sends(&mut bed)[0][..6], FAR);
    bed.now += ARP_FRESH;
    let sent = sends(&mut bed);
    let asked: Vec<_> = sent.iter().filter(|frame| frame[20] == 58).collect();
    assert_eq!(asked.len(), 1, "{sent:02x?}");
    let group = ndp::solicited_node(ip("fd00::2"));
    let question = ndp::solicitation(ip("fd00::2"), NEAR);
    let expected = ndp_frame([NEAR, ndp::group_mac(group)], "fd00::1", &group.to_string(), &question);
    assert_eq!(*asked[0], expected);
    for _ in 0..3 {
        bed.now += SECOND;
        bed.settle();
    }
    assert_eq!((bed.counter("sent.neighbour_solicitations"), bed.counter("neighbours.silent")), (4, 1));
    bed.sent();
    bed.now += SECOND;
    assert_eq!(sends(&mut bed).len(), 1, "a question");
    bed.give(&answer(six(2, 0).ip(), OTHER));
    let sent = bed.sent();
    assert_eq!((&sent[0][..6], payload(&sent[0])), (&OTHER[..], &b"where?"[..]));
}

/// Questions for a link-local neighbour come from the interface's own link-local address (RFC 6724 5, rule 2).
#[test]
fn a_question_goes_out_from_an_address_that_the_neighbour_can_answer() {
    for (to, from) in [("fd00::2", "fd00::1"), ("fe80::2", LINK_LOCAL)] {
        let mut bed = Bed::new();
        let mut flow = bed.open(5, &udp(six(1, 4000), None));
        flow.send(&[&outgoing(six(1, 4000), (ip(to), 9).into(), b"hello")]).expect("there is room");
        let group = ndp::solicited_node(ip(to));
        let question = ndp::solicitation(ip(to), NEAR);
        assert_eq!(bed.sent(), [ndp_frame([NEAR, ndp::group_mac(group)], from, &group.to_string(), &question)]);
    }
}
