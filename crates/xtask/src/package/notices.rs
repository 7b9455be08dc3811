//! The licences of third-party crates in the programs.

use super::components::Component;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A text: each crate with its licence, and then each text of a licence that lies beside one, once.
pub(super) fn text(components: &[Component]) -> String {
    of(components, |manifest| licences(manifest.parent().unwrap_or(manifest)))
}

/// `licences`: the texts that lie beside a manifest.
fn of(components: &[Component], licences: impl Fn(&Path) -> Vec<String>) -> String {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut notice = String::from("Streamline has code of these crates in it:\n\n");
    for component in components {
        let name = format!("{} {}", component.name, component.version);
        notice += &format!("{name}: {}\n", component.licence.as_deref().unwrap_or("see below"));
        for text in licences(&component.manifest) {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    for (text, of) in texts {
        let of: Vec<String> = of.into_iter().collect();
        notice += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), of.join(", "), text.trim());
    }
    notice
}

/// The texts of licences in a folder.
fn licences(folder: &Path) -> Vec<String> {
    const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let is_licence = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        NAMES.iter().any(|known| name.starts_with(known))
    };
    paths.iter().filter(is_licence).filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_licence_and_a_text_is_said_once() {
        let component = |name: &str| Component {
            name: name.into(),
            version: "1.0.0".into(),
            licence: Some("MIT".into()),
            digest: None,
            manifest: name.into(),
        };
        let text = of(&[component("inner"), component("outer")], |_| vec!["terms".into()]);
        assert!(text.contains("\ninner 1.0.0: MIT\nouter 1.0.0: MIT\n"), "{text}");
        assert!(text.ends_with("\ninner 1.0.0, outer 1.0.0\n\nterms\n"), "{text}");
        assert_eq!(text.matches("terms").count(), 1);
    }
}
