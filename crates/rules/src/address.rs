//! Addresses and ports in a rule's header: lists, networks, ranges, variables, negation.

use crate::mistake::Read;
use crate::text::{Word, unsigned};
use std::collections::HashMap;
use std::net::IpAddr;

/// Values by variable name, without the `$`.
pub(crate) type Variables = HashMap<String, String>;

/// How deep variables may refer to other variables.
const DEPTH: u32 = 8;

/// The variables of a default Suricata installation. Requests may override them.
pub(crate) fn default_variables() -> Variables {
    const HOME: [&str; 9] = [
        "HTTP_SERVERS",
        "SMTP_SERVERS",
        "SQL_SERVERS",
        "DNS_SERVERS",
        "TELNET_SERVERS",
        "DC_SERVERS",
        "DNP3_SERVER",
        "DNP3_CLIENT",
        "MODBUS_CLIENT",
    ];
    const OTHERS: [(&str, &str); 19] = [
        ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
        ("EXTERNAL_NET", "!$HOME_NET"),
        ("AIM_SERVERS", "$EXTERNAL_NET"),
        ("MODBUS_SERVER", "$HOME_NET"),
        ("ENIP_CLIENT", "$HOME_NET"),
        ("ENIP_SERVER", "$HOME_NET"),
        ("HTTP_PORTS", "80"),
        ("SHELLCODE_PORTS", "!80"),
        ("ORACLE_PORTS", "1521"),
        ("SSH_PORTS", "22"),
        ("DNP3_PORTS", "20000"),
        ("MODBUS_PORTS", "502"),
        ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
        ("FTP_PORTS", "21"),
        ("GENEVE_PORTS", "6081"),
        ("VXLAN_PORTS", "4789"),
        ("TEREDO_PORTS", "3544"),
        ("SIP_PORTS", "[5060,5061]"),
        ("SNMP_SERVERS", "$HOME_NET"),
    ];
    let home = HOME.iter().map(|name| (name.to_string(), "$HOME_NET".to_string()));
    home.chain(OTHERS.iter().map(|(name, value)| (name.to_string(), value.to_string()))).collect()
}

/// A list of ranges with exceptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges<T> {
    /// Empty: everything that `without` does not exclude.
    within: Vec<(T, T)>,
    without: Vec<(T, T)>,
    /// The list contains the word `any`.
    any: bool,
}

impl<T: Copy + Ord> Ranges<T> {
    pub fn has(&self, one: T) -> bool {
        let lies = |ranges: &[(T, T)]| ranges.iter().any(|(low, high)| *low <= one && one <= *high);
        (self.any || self.within.is_empty() || lies(&self.within)) && !lies(&self.without)
    }

    /// Whether the list says `any`, without exceptions.
    pub fn is_any(&self) -> bool {
        self.any && self.without.is_empty()
    }

    pub fn has_exceptions(&self) -> bool {
        !self.without.is_empty()
    }
}

/// IP version and address.
type Key = (u8, u128);
pub(crate) type Addresses = Ranges<Key>;
pub(crate) type Ports = Ranges<u16>;

pub(crate) fn key(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(address) => (4, u128::from(u32::from(address))),
        IpAddr::V6(address) => (6, u128::from(address)),
    }
}

pub(crate) fn addresses(word: Word<'_>, variables: &Variables) -> Read<Addresses> {
    let mut ranges = Ranges::default();
    list(word, word.at, false, DEPTH, variables, &mut ranges, &network)?;
    Ok(ranges)
}

pub(crate) fn ports(word: Word<'_>, variables: &Variables) -> Read<Ports> {
    let mut ranges = Ranges::default();
    list(word, word.at, false, DEPTH, variables, &mut ranges, &port_range)?;
    Ok(ranges)
}

/// Reads a list or one element. Mistakes inside a variable's value are reported at the variable.
fn list<T: Copy + Ord>(
    word: Word<'_>,
    at: usize,
    negated: bool,
    depth: u32,
    variables: &Variables,
    ranges: &mut Ranges<T>,
    element: &impl Fn(&str) -> Result<Option<(T, T)>, String>,
) -> Read<()> {
    let word = word.trim();
    let here = |reason: String| Word::new("", at).wrong(reason);
    let Some(below) = depth.checked_sub(1) else { return here("lists lie too deep in each other".to_string()) };
    let text = word.text;
    if let Some(rest) = text.strip_prefix('!') {
        return list(Word::new(rest, word.at + 1), at, !negated, below, variables, ranges, element);
    }
    if let Some(name) = text.strip_prefix('$') {
        let Some(value) = variables.get(name) else { return here(format!("the variable ${name} is not set")) };
        return list(Word::new(value, 0), at, negated, below, variables, ranges, element);
    }
    if let Some(inner) = text.strip_prefix('[') {
        let Some(inner) = inner.strip_suffix(']') else { return here("a bracket of a list is missing".to_string()) };
        for part in split_list(inner) {
            list(Word::new(part, at), at, negated, below, variables, ranges, element)?;
        }
        return Ok(());
    }
    if text.eq_ignore_ascii_case("any") {
        if negated {
            return here("!any leaves no address".to_string());
        }
        ranges.any = true;
        return Ok(());
    }
    match element(text) {
        Ok(Some(range)) => {
            if negated {
                ranges.without.push(range)
            } else {
                ranges.within.push(range)
            }
        }
        Ok(None) => {}
        Err(reason) => return here(reason),
    }
    Ok(())
}

/// Splits at commas outside brackets.
fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn network(text: &str) -> Result<Option<(Key, Key)>, String> {
    let unknown = || format!("\u{201c}{text}\u{201d} is no address");
    let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| unknown());
    if let Some((low, high)) = text.split_once('-') {
        let (low, high) = (key(address(low)?), key(address(high)?));
        return if low.0 == high.0 && low <= high { Ok(Some((low, high))) } else { Err(unknown()) };
    }
    let Some((base, length)) = text.split_once('/') else {
        let one = key(address(text)?);
        return Ok(Some((one, one)));
    };
    let (family, base) = key(address(base)?);
    let bits = if family == 4 { 32 } else { 128 };
    let length: u32 = match length.parse::<u32>() {
        Ok(length) if length <= bits => length,
        _ => match length.parse::<std::net::Ipv4Addr>() {
            Ok(mask) if family == 4 => u32::from(mask).leading_ones(),
            _ => return Err(format!("\u{201c}{length}\u{201d} is no length of a network")),
        },
    };
    let host = if bits - length == 128 { u128::MAX } else { (1u128 << (bits - length)) - 1 };
    Ok(Some(((family, base & !host), (family, base | host))))
}

fn port_range(text: &str) -> Result<Option<(u16, u16)>, String> {
    let port = |text: &str, otherwise: u16| {
        if text.is_empty() {
            return Ok(otherwise);
        }
        let read = unsigned(Word::new(text, 0), 16);
        read.map(|port| port as u16).map_err(|_| format!("\u{201c}{text}\u{201d} is no port"))
    };
    if text.is_empty() {
        return Err("a port is missing".to_string());
    }
    let (low, high) = match text.split_once(':') {
        Some((low, high)) => (port(low, 0)?, port(high, u16::MAX)?),
        None => (port(text, 0)?, port(text, 0)?),
    };
    if low > high { Err(format!("no port lies between {low} and {high}")) } else { Ok(Some((low, high))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_addresses() {
        let variables = default_variables();
        let has = |text: &str, address: &str| {
            addresses(Word::new(text, 0), &variables).unwrap().has(key(address.parse().unwrap()))
        };
        assert!(has("any", "1.2.3.4") && has("any", "::1"));
        assert!(has("$HOME_NET", "10.1.2.3") && !has("$HOME_NET", "8.8.8.8"));
        assert!(has("$EXTERNAL_NET", "8.8.8.8") && !has("$EXTERNAL_NET", "10.1.2.3"));
        assert!(has("[10.0.0.0/8,!10.1.0.0/16]", "10.2.0.1") && !has("[10.0.0.0/8,!10.1.0.0/16]", "10.1.0.1"));
        assert!(has("2001:db8::/32", "2001:db8::1") && !has("2001:db8::/32", "::1"));
        assert!(has("1.2.3.1-1.2.3.9", "1.2.3.5"));
        for wrong in ["!any", "$NONE", "10.0.0.0/33", "x", "[1.2.3.4", "9.9.9.9-1.1.1.1"] {
            assert!(addresses(Word::new(wrong, 0), &variables).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_ports() {
        let variables = default_variables();
        let has = |text: &str, port: u16| ports(Word::new(text, 0), &variables).unwrap().has(port);
        assert!(has("80", 80) && !has("80", 81) && has("!80", 81));
        assert!(has("[80,8000:8080]", 8001) && has("1024:", 65535) && has(":1023", 0));
        assert!(has("[1:100,!80]", 81) && !has("[1:100,!80]", 80));
        assert!(has("[any,!80]", 81) && !has("[any,!80]", 80) && !has("[80,any,!80]", 80));
        for wrong in ["65536", "x", "9:1", "!any"] {
            assert!(ports(Word::new(wrong, 0), &variables).is_err(), "{wrong}");
        }
    }
}
