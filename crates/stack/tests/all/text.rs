//! Stacks as text: completion, canonical spelling, and errors with carets.

use stack::{Description, NoEnv};

use crate::support::*;

#[test]
fn what_is_left_out_is_completed() {
    let check = |text: &str, expected: &str| {
        let complete = Description::parse(text).and_then(|description| description.complete(&facts(0)));
        let complete = complete.unwrap_or_else(|error| panic!("{}", error.render(text, "stack")));
        assert_eq!(complete.canonical(), expected, "{text}");
        let again = Description::parse(expected).unwrap();
        assert_eq!(again.canonical(), expected);
        assert_eq!(again.complete(&facts(0)).unwrap().canonical(), expected);
    };
    let whole = "udp 4000 | ipv4 | ethernet eth0";
    check("udp 4000", whole);
    check("udp 4000 | ipv4", whole);
    check("udp 4000 | ethernet", whole);
    check("udp 4000 | ethernet eth0", whole);
    check("udp port=4000 | ipv4 ttl=64 dscp=0", whole);
    check("(udp, 4000) > (ipv4)", whole);
    check("udp 4000 # a comment\n | ipv4", whole);
    check("udp 4000 to=10.0.0.2:53", "udp 4000 to=10.0.0.2:53 | ipv4 | ethernet eth0");
    check("udp 4000 | ipv4 dscp=46 ttl=1", "udp 4000 | ipv4 ttl=1 dscp=46 | ethernet eth0");
    check("icmp", "icmp | ipv4 | ethernet eth0");
    check("icmp id=0", "icmp | ipv4 | ethernet eth0");
    check("icmp id=7", "icmp id=7 | ipv4 | ethernet eth0");
    check("arp", "arp | ethernet eth0");
    check("dummy | udp 4000", "dummy | udp 4000 | ipv4 | ethernet eth0");
    // After the last protocol: the block stays at the driver's end.
    check("udp 4000 | tap x", "udp 4000 | ipv4 | ethernet eth0 | tap x");
    check("udp 4000 | ipv4 | tap x", "udp 4000 | ipv4 | ethernet eth0 | tap x");
    // Between two protocols: the block stays above the lower one.
    check("udp 4000 | tap x | ethernet", "udp 4000 | ipv4 | tap x | ethernet eth0");
    check("udp 4000 | dummy | ipv4 | dummy | ethernet", "udp 4000 | dummy | ipv4 | dummy | ethernet eth0");
    check(
        "udp 4000 | bpf \"tcp port 80\" | tap \"a b\"",
        "udp 4000 | ipv4 | ethernet eth0 | bpf \"tcp port 80\" | tap \"a b\"",
    );
}

/// The family of the flow's address decides which protocol carries the transport protocol.
#[test]
fn what_is_left_out_over_ipv6_is_completed() {
    let check = |text: &str, expected: &str| {
        let complete = Description::parse(text).and_then(|description| description.complete(&facts_v6(0)));
        let complete = complete.unwrap_or_else(|error| panic!("{}", error.render(text, "stack")));
        assert_eq!(complete.canonical(), expected, "{text}");
        assert_eq!(Description::parse(expected).unwrap().complete(&facts_v6(0)).unwrap().canonical(), expected);
    };
    check("udp 4000", "udp 4000 | ipv6 | ethernet eth0");
    check("udp 4000 | tap x | ethernet", "udp 4000 | ipv6 | tap x | ethernet eth0");
    check("udp 4000 to=[fd00::2]:53", "udp 4000 to=[fd00::2]:53 | ipv6 | ethernet eth0");
    check("udp 4000 to=[fe80::2%7]:53", "udp 4000 to=[fe80::2]:53 | ipv6 | ethernet eth0");
    check("tcp 4000 to=[fd00::2]:53", "tcp 4000 to=[fd00::2]:53 | ipv6 | ethernet eth0");
    check("udp 4000 | ipv6 hops=64 dscp=0", "udp 4000 | ipv6 | ethernet eth0");
    check("udp 4000 | ipv6 dscp=46 hops=1", "udp 4000 | ipv6 hops=1 dscp=46 | ethernet eth0");
    check("icmp id=7", "icmp id=7 | ipv6 | ethernet eth0");
    check("ndp", "ndp | ethernet eth0");
}

#[test]
fn parameters_can_be_read() {
    let description = Description::parse("dummy | udp 4000 to=10.0.0.2:53 | ipv4 dscp=8").unwrap();
    let udp = description.given("udp").unwrap();
    assert_eq!((udp.number("port"), udp.endpoint("to")), (4000, Some(endpoint("10.0.0.2:53"))));
    let ipv4 = description.given("ipv4").unwrap();
    assert_eq!((ipv4.number("dscp"), ipv4.number("ttl"), ipv4.text("ttl")), (8, 64, None));
    assert!(description.given("ethernet").is_none());
    let complete = description.complete(&facts(0)).unwrap();
    assert_eq!(complete.given("ethernet").unwrap().text("device"), Some("eth0"));
}

#[test]
fn errors_point_at_their_place() {
    let mut all = String::new();
    let rows = WRONG.iter().map(|text| (text, facts(0))).chain(WRONG_OVER_IPV6.iter().map(|text| (text, facts_v6(0))));
    for (text, facts) in rows {
        let built = Description::parse(text).and_then(|description| description.build(&facts, &mut NoEnv));
        let error = built.err().unwrap_or_else(|| panic!("{text:?} was built"));
        all.push_str(&error.render(text, "stack"));
        all.push('\n');
    }
    assert_eq!(all, include_str!("errors.txt"));
}

const WRONG_OVER_IPV6: &[&str] =
    &["udp 4000 | ipv4", "udp 4000 to=10.0.0.1:53", "tcp 4000 to=10.0.0.1:53", "arp", "udp 4000 to=[::]:53"];

const WRONG: &[&str] = &[
    "",
    "upd 4000",
    "tcp2000",
    "udp",
    "udp 0",
    "udp 4000 5000",
    "udp 4000 too=10.0.0.1:5",
    "udp 4000 to=10.0.0.1",
    "udp 4000 to=0.0.0.0:53",
    "udp 4000 port=5",
    "udp 4000 to=[fd00::1]",
    "udp 4000 to=fd00::1:53",
    "udp 4000 to=[fd00::1]:53",
    "udp 4000 | ipv6",
    "ndp",
    "icmp 7",
    "dummy 1",
    "udp 4000 | ipv4 ttl=256",
    "udp 4000 | tap",
    "ipv4 | udp 4000",
    "udp 4000 | ethernet | ipv4",
    "udp 4000 | icmp",
    "udp 4000 | arp",
    "ipv4 | ethernet",
    "dummy",
    "udp 4000 | ethernet wlan0",
    "tap x | udp 4000",
    "udp 4000 | bpf | ipv4",
    "udp 4000 | tap trace.pcap",
    "udp 4000 | bpf",
    "udp 4000; udp 5000",
    "udp 4000 + udp 5000",
    "udp 4000 | { ipv4 | ethernet }",
    "udp 4000 || ipv4",
    "udp 4000 |22 ipv4",
    "udp 4000 or icmp",
    "udp $port",
    "udp 4000 name=x",
    "let a = udp 4000; a",
    "set workers=2; udp 4000",
    "udp 4000 |",
];

#[test]
fn a_stack_has_a_largest_size() {
    let text = |count: usize| format!("udp 4000{}", " | dummy".repeat(count));
    assert_eq!(Description::parse(&text(31)).unwrap().build(&facts(0), &mut NoEnv).unwrap().header_bytes(), 42);
    let error = Description::parse(&text(32)).unwrap_err();
    assert_eq!(error.to_string(), "a stack has at most 32 blocks");
}
