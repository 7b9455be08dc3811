//! The bill of materials: the third-party crates in the programs, for scanners of known weaknesses.
//!
//! CycloneDX 1.5 as JSON. It is made here, as `cargo-cyclonedx` writes one file for each crate, with a random number and the
//! time of day in it: two builds of one commit give the same bytes.

use super::components::Component;
use serde_json::{Value, json};

/// The text of `streamline.cdx.json`. `time`: when the commit was made, as RFC 3339 has it.
pub(super) fn text(version: &str, time: &str, components: &[Component]) -> String {
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application", "name": "streamline", "version": version, "bom-ref": "streamline",
                "licenses": [{"expression": "Apache-2.0 OR MIT"}],
            },
        },
        "components": components.iter().map(entry).collect::<Vec<_>>(),
    });
    format!("{bill:#}\n")
}

fn entry(component: &Component) -> Value {
    let Component { name, version, licence, digest, .. } = component;
    let purl = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
    let mut entry = json!({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl});
    if let Some(licence) = licence {
        // Crates of old have `MIT/Apache-2.0`, which SPDX has no more.
        entry["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(digest) = digest {
        entry["hashes"] = json!([{"alg": "SHA-256", "content": digest}]);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scanner_finds_each_crate_by_its_url() {
        let component = Component {
            name: "inner".into(),
            version: "1.0.0+x".into(),
            licence: Some("MIT/Apache-2.0".into()),
            digest: Some("ab".into()),
            manifest: "inner".into(),
        };
        let text = text("0.1.0", "2026-01-01T00:00:00Z", &[component]);
        let bill: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/inner@1.0.0%2Bx");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "ab");
        assert_eq!(bill["metadata"]["component"]["version"], "0.1.0");
    }
}
