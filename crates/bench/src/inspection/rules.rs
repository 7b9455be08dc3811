//! Rules that are measured with: 15,000 of the forms that rule files for HTTP have, the same on every machine. One of them matches
//! every response, and gives an alert for each client; the others never match.

use crate::case::CaseError;
use crate::first_light::sides::FEW;
use crate::random::Random;
use crate::setting::Setting;
use std::fmt::Write;
use std::path::PathBuf;

const RULES: usize = 15_000;

/// Alerts that the file gives on the HTTP capture: the rule with a threshold gives one for each client.
pub(super) const ALERTS: u64 = FEW as u64;

fn word(random: &mut Random, letters: usize) -> String {
    (0..letters).map(|_| char::from(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789"[random.below(32)])).collect()
}

/// The file's text.
pub(super) fn text() -> String {
    let mut random = Random::new(0x52);
    let mut text = String::from(
        "alert http any any -> any any (msg:\"seen\"; flow:established,to_client; http.server; content:\"bench\"; \
         threshold:type limit, track by_dst, count 1, seconds 86400; sid:1;)\n",
    );
    for sid in 2..=RULES {
        let len = 6 + random.below(10);
        let (first, second) = (word(&mut random, len), word(&mut random, 4));
        let matches = match sid % 8 {
            0 => format!("flow:established,to_server; http.uri; content:\"/{first}\"; nocase"),
            1 => {
                format!("flow:established,to_server; http.uri; content:\"/{first}.php\"; http.method; content:\"POST\"")
            }
            2 => format!("flow:established,to_server; http.user_agent; content:\"{first}\"; startswith"),
            3 => {
                format!("flow:established,to_server; http.host; content:\"{}.example\"; endswith", first.to_lowercase())
            }
            4 => format!(
                "flow:established,to_client; file.data; content:\"{first}\"; content:\"{second}\"; distance:0; within:64"
            ),
            5 => format!(
                "flow:established,to_client; file.data; content:\"{first}\"; nocase; pcre:\"/{first}[a-z]{{2,8}}/i\""
            ),
            6 => format!("flow:established; content:\"{first}\"; depth:512; content:\"{second}\"; distance:4"),
            _ => format!(
                "flow:established,to_client; http.stat_code; content:\"404\"; http.header; content:\"X-{first}\""
            ),
        };
        let _ = writeln!(text, "alert http any any -> any any (msg:\"rule {sid}\"; {matches}; sid:{sid}; rev:1;)");
    }
    text
}

/// The first contents of the rules for bodies, one behind the other. Each makes its rule a candidate, and no rule matches.
pub(super) fn worst(len: usize) -> Vec<u8> {
    let text = text();
    let mut words =
        text.lines().filter_map(|line| line.split_once("file.data; content:\"")?.1.split('"').next()).cycle();
    let mut worst = Vec::with_capacity(len + 16);
    while worst.len() < len {
        worst.extend(words.next().unwrap_or("none").bytes());
    }
    worst.truncate(len);
    worst
}

pub(super) fn file(setting: &Setting) -> Result<PathBuf, CaseError> {
    Ok(setting.store.text(&format!("rules-{RULES}"), &text())?)
}
