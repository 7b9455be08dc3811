//! Checks that crates without permission in ARCHITECTURE.md forbid `unsafe`, and that crates with permission need it.
//! clippy checks that each use has its reason.

use super::permissions::{self, Permission};
use super::{Finding, Tree};
use crate::workspace::Package;

const FORBID: &str = "#![forbid(unsafe_code)]";
/// Forms of `unsafe` in code, but not in prose.
const USES: &[&str] = &["unsafe {", "unsafe fn ", "unsafe impl", "unsafe extern ", "unsafe(", "unsafe trait "];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    // The check `arrows` reports errors in the table.
    let Ok(permissions) = permissions::read(tree) else { return Vec::new() };
    let crates = permissions.iter().filter_map(|row| tree.workspace.package(&row.name).map(|package| (row, package)));
    crates.flat_map(|(permission, package)| check_package(tree, permission, package)).collect()
}

fn check_package(tree: &Tree, permission: &Permission, package: &Package) -> Vec<Finding> {
    let name = &package.name;
    if permission.may_be_unsafe {
        if uses_unsafe(tree, package) {
            return Vec::new();
        }
        let message = format!("`{name}` holds no unsafe code; write `no`, and {FORBID} into its root");
        return vec![Finding::new(permissions::FILE, permission.line, message)];
    }
    let roots = package.targets.iter().filter(|target| target.is_product()).map(|target| target.file.as_str());
    let lacks = |root: &&str| tree.files.get(root).is_none_or(|file| !file.lines().any(|(_, line)| line == FORBID));
    let message =
        format!("`{name}` does not forbid unsafe code; add {FORBID}, or argue the `yes` in {}", permissions::FILE);
    roots.filter(lacks).map(|root| Finding::new(root, 1, message.clone())).collect()
}

fn uses_unsafe(tree: &Tree, package: &Package) -> bool {
    let inside = format!("{}/", package.folder);
    let mut files = tree.files.with_extension("rs").filter(|file| file.path.starts_with(&inside));
    files.any(|file| {
        file.lines().any(|(_, line)| !line.trim_start().starts_with("//") && USES.iter().any(|one| line.contains(one)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::workspace::{Target, Workspace};

    fn check_crate(permission: &str, root: &str, other: &str, expected: &[&str]) {
        let table =
            format!("## Rooms\n| crate | contents | may use | unsafe |\n|-|-|-|-|\n| a | x | - | {permission} |\n");
        let target = |kind: &str, file: &str| Target { name: "a".into(), kinds: vec![kind.into()], file: file.into() };
        let targets = vec![target("lib", "crates/a/src/lib.rs"), target("test", "crates/a/tests/t.rs")];
        let package = Package { name: "a".into(), folder: "crates/a".into(), arrows: Vec::new(), targets };
        let files = [(permissions::FILE, &*table), ("crates/a/src/lib.rs", root), ("crates/a/src/other.rs", other)];
        let workspace = Workspace { packages: vec![package], default_members: Vec::new() };
        let tree = Tree { files: Files::made_up(&files), workspace };
        assert_eq!(check(&tree).iter().map(Finding::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn forbidden_or_needed() {
        let forbid = "//! A.\n#![forbid(unsafe_code)]\n";
        let none = "ARCHITECTURE.md:4: `a` holds no unsafe code; write `no`, and #![forbid(unsafe_code)] into its root";
        let open = "crates/a/src/lib.rs:1: `a` does not forbid unsafe code; add #![forbid(unsafe_code)], or argue the \
                    `yes` in ARCHITECTURE.md";
        check_crate("no", forbid, "", &[]);
        check_crate("no", "//! A.\n//! #![forbid(unsafe_code)]\n", "", &[open]);
        check_crate("yes", "//! A.\n", "    unsafe { x() }\n", &[]);
        check_crate("yes", "//! A.\n", "    // unsafe { x() }\n", &[none]);
        check_crate("yes", forbid, "", &[none]);
    }
}
