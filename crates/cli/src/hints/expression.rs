//! Whether a text is a tcpdump expression (pcap-filter(7)), by its words. Asks no libpcap, which would look for hosts by
//! name.

/// Words that may begin a condition, or join two.
const WORDS: &[&str] = &[
    "and",
    "arp",
    "broadcast",
    "dst",
    "ether",
    "gateway",
    "greater",
    "host",
    "icmp",
    "icmp6",
    "igmp",
    "inbound",
    "ip",
    "ip6",
    "less",
    "mpls",
    "multicast",
    "net",
    "not",
    "or",
    "outbound",
    "port",
    "portrange",
    "proto",
    "rarp",
    "sctp",
    "src",
    "tcp",
    "udp",
    "vlan",
    "&&",
    "||",
    "!",
];

/// Words with a value behind them.
const TAKE_VALUE: &[&str] = &["gateway", "greater", "host", "less", "net", "port", "portrange", "proto"];

/// Whether each word is one of the language or a value, and there are two at least.
pub(super) fn is_expression(text: &str) -> bool {
    let spaced = text.replace(['(', ')'], " ");
    let words: Vec<&str> = spaced.split_whitespace().map(|word| word.trim_matches('"')).collect();
    let is_value = |at: usize| {
        let word = words[at];
        let is_number = word.starts_with(|first: char| first.is_ascii_hexdigit())
            && word.chars().all(|one| one.is_ascii_hexdigit() || ".:/-".contains(one));
        let is_after = at > 0 && TAKE_VALUE.contains(&words[at - 1]) && !word.contains(['=', '<', '>', '|']);
        is_number || is_after
    };
    let is_word = |at: usize| WORDS.contains(&words[at]);
    words.len() > 1 && WORDS.contains(&words[0]) && (1..words.len()).all(|at| is_word(at) || is_value(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_known_by_their_words() {
        let rows = [
            ("tcp port 80", true),
            ("tcp and port 80", true),
            ("src host example.org and not dst port ssh", true),
            ("(tcp or udp) and net 10.0.0.0/8", true),
            ("ip6 && ! icmp6", true),
            ("host 2001:db8::1", true),
            ("tcp", false),
            ("port", false),
            ("http and port 80", false),
            ("tcp timeout=5s", false),
            ("pcap x.pcap", false),
            ("port 80 count", false),
            ("", false),
        ];
        for (text, expected) in rows {
            assert_eq!(is_expression(text), expected, "{text}");
        }
    }
}
