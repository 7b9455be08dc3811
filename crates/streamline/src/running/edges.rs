//! Names of a running request's edges.
//!
//! An edge is named by the filter that gives: by number (as in `streamline explain --json`), by kind, or by its
//! `name=`. If that filter gives to several, the filter that gets follows a dot: `tcp`, `2`, `port.count`, `1.3`. The
//! edge of rejected blocks is always named with both.

use crate::space::PARSER;
use control::Design;
use engine::{Choice, Edge, Edges, NodeId, Plan, Task};
use filter::Types;

/// The edges that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Their places in the worker.
    pub(crate) edges: Vec<Edges>,
    /// The types of the blocks that go along it.
    pub types: Types,
    /// Its name in numbers, the same for each name of the edge.
    pub name: String,
    /// The label of the filter that gives, for people.
    pub label: String,
}

/// A filter that gives something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Giver {
    /// Its number.
    pub number: u32,
    /// Its kind, and its name in the request.
    names: Vec<String>,
    /// Its label, for people.
    pub label: String,
    /// The types that it gives.
    pub types: Types,
    /// The types that it gets, and so rejects.
    input: Types,
    /// The numbers of the filters that get its blocks, in the request's order; `true`: that filter gets the rejected
    /// blocks.
    pub to: Vec<(u32, bool)>,
    space: String,
    /// Its nodes in the worker; empty if what it gives stays in a space below.
    at: Vec<usize>,
    /// For each of `to` and each of `at`: which edge it is there.
    edges: Vec<Vec<usize>>,
}

/// Every edge of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeNames {
    givers: Vec<Giver>,
    names: Vec<Vec<String>>,
}

impl EdgeNames {
    /// Names the edges of a design. `rest` is the worker's part of it; `origins` says for each node of `rest` which
    /// node of the design it is.
    pub(crate) fn new(design: &Design, rest: &Plan, origins: &[NodeId]) -> EdgeNames {
        let mut operands = vec![false; design.plan.nodes.len()];
        for node in &design.plan.nodes {
            if let Task::Choose(choice) = &node.task {
                mark(choice, &mut operands);
            }
        }
        let names = (0..design.plan.nodes.len()).map(|at| {
            let name = design.graph.nodes.get(design.sites[at].vertex.index()).and_then(Option::as_ref);
            let kind = match &design.plan.nodes[at].task {
                Task::Filter { kind, .. } => Some(kind.name.to_string()),
                Task::Choose(_) => None,
            };
            kind.into_iter().chain(name.and_then(|vertex| vertex.name.clone())).collect()
        });
        let names: Vec<Vec<String>> = names.collect();
        let mut givers = Vec::new();
        for (index, node) in design.plan.nodes.iter().enumerate() {
            if operands[index] || node.edges.is_empty() {
                continue;
            }
            let types = match &node.task {
                Task::Filter { kind, params } => kind.output(node.input, params),
                Task::Choose(_) => node.input,
            };
            // The sink end of an isolated process gives no blocks.
            let gives = |worker: &usize| !rest.nodes[*worker].edges.is_empty();
            let at: Vec<usize> =
                (0..origins.len()).filter(|worker| origins[*worker].index() == index).filter(gives).collect();
            let place = |one: &Edge, worker: &usize| {
                let is_it = |edge: &Edge| origins[edge.to.index()] == one.to && edge.rejected == one.rejected;
                rest.nodes[*worker].edges.iter().position(is_it)
            };
            let edges = node.edges.iter().map(|edge| at.iter().filter_map(|worker| place(edge, worker)).collect());
            givers.push(Giver {
                number: index as u32,
                names: names[index].clone(),
                label: node.label.clone(),
                space: node.space.clone(),
                types,
                input: node.input,
                to: node.edges.iter().map(|edge| (edge.to.0, edge.rejected)).collect(),
                edges: edges.collect(),
                at,
            });
        }
        EdgeNames { givers, names }
    }

    /// The filters whose edges can be watched.
    pub fn givers(&self) -> impl Iterator<Item = &Giver> {
        self.givers.iter().filter(|giver| !giver.at.is_empty())
    }

    /// The shortest name that means this filter alone.
    pub fn name(&self, giver: &Giver) -> String {
        let alone = |name: &&String| self.givers().filter(|other| other.names.contains(name)).count() == 1;
        giver.names.iter().rev().find(alone).cloned().unwrap_or_else(|| giver.number.to_string())
    }

    /// The edges of a filter's rejected blocks: name, number, and types.
    pub fn rejects<'a>(&'a self, giver: &'a Giver) -> impl Iterator<Item = (String, String, Types)> + 'a {
        giver.to.iter().filter(|(_, rejected)| *rejected).map(|(to, _)| {
            let is_called = |name: &&String| {
                giver.to.iter().filter(|(other, _)| self.names[*other as usize].contains(name)).count() == 1
            };
            let to_name =
                self.names[*to as usize].iter().rev().find(is_called).cloned().unwrap_or_else(|| to.to_string());
            (format!("{}.{to_name}", self.name(giver)), format!("{}.{to}", giver.number), giver.input)
        })
    }

    /// Finds the edge that a text names. The error says what is wrong, but does not list the edges there are.
    pub fn find(&self, text: &str) -> Result<Found, String> {
        let (from, to) = match text.split_once('.') {
            None => (text, None),
            Some((from, to)) => (from, Some(to)),
        };
        let givers: Vec<&Giver> = self.givers.iter().filter(|giver| giver.is_called(from)).collect();
        let giver = match givers[..] {
            [giver] => giver,
            [] => return Err(format!("no filter that gives anything is called `{from}`")),
            _ => return Err(format!("several filters are called `{from}`: say which, by number")),
        };
        if giver.at.is_empty() {
            let space = if giver.space == PARSER { "space `parser`" } else { &giver.space };
            return Err(format!("what `{}` gives stays in the {space}", giver.label));
        }
        let all = || giver.at.iter().map(|from| Edges { from: *from, edge: None }).collect();
        let (edges, name, types) = match to {
            None => (all(), giver.number.to_string(), giver.types),
            Some(to) => {
                let is_called =
                    |number: u32| to.parse() == Ok(number) || self.names[number as usize].iter().any(|name| name == to);
                let places: Vec<usize> = (0..giver.to.len()).filter(|at| is_called(giver.to[*at].0)).collect();
                let [place] = places[..] else {
                    let none = format!("nothing that is called `{to}` comes after `{}`", giver.label);
                    let several =
                        format!("several filters after `{}` are called `{to}`: say which, by number", giver.label);
                    return Err(if places.is_empty() { none } else { several });
                };
                let edges = giver.at.iter().zip(&giver.edges[place]);
                let edges = edges.map(|(from, edge)| Edges { from: *from, edge: Some(*edge) }).collect();
                let (to, rejected) = giver.to[place];
                let types = if rejected { giver.input } else { giver.types };
                (edges, format!("{}.{to}", giver.number), types)
            }
        };
        Ok(Found { edges, types, name, label: giver.label.clone() })
    }
}

impl Giver {
    fn is_called(&self, text: &str) -> bool {
        text.parse() == Ok(self.number) || self.names.iter().any(|name| name == text)
    }
}

fn mark(choice: &Choice, operands: &mut [bool]) {
    match choice {
        Choice::Filter(id) => operands[id.index()] = true,
        Choice::Class(_) => {}
        Choice::All(parts) | Choice::Any(parts) => parts.iter().for_each(|part| mark(part, operands)),
        Choice::Not(part) | Choice::KeepClass(part) => mark(part, operands),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;

    fn names(request: &str) -> EdgeNames {
        let design = Session::new().design(request, &Default::default()).unwrap();
        let origins: Vec<NodeId> = (0..design.plan.nodes.len()).map(|at| NodeId(at as u32)).collect();
        EdgeNames::new(&design, &design.plan, &origins)
    }

    #[test]
    fn an_edge_has_the_name_of_who_gives() {
        let names = names("pcap x | port | { |53 count | json + |80 http name=web | files dir=out }");
        let number = |name: &str| names.givers().find(|giver| names.name(giver) == name).unwrap().number;
        let (port, web) = (number("port").to_string(), number("web").to_string());
        let rows = [
            ("pcap", "0", "frame"),
            ("0", "0", "frame"),
            ("port", &port, "frame"),
            (&port, &port, "frame"),
            ("web", &web, "message"),
            ("http", &web, "message"),
        ];
        for (text, name, types) in rows {
            let found = names.find(text).unwrap();
            assert_eq!((found.name.as_str(), found.types.to_string().as_str()), (name, types), "{text}");
            assert_eq!(found.edges.iter().map(|edges| edges.edge).collect::<Vec<_>>(), [None]);
        }
        let count = names.find("port.count").unwrap();
        assert_eq!(count.edges.iter().map(|edges| edges.edge).collect::<Vec<_>>(), [Some(0)]);
        assert_eq!(names.find(&count.name), Ok(count));
        let wrong = [
            ("port.web", "nothing that is called `web` comes after `port`"),
            ("files", "no filter that gives anything is called `files`"),
            ("99", "no filter"),
            ("", "no filter"),
            ("tcp.", "nothing that is called ``"),
        ];
        for (text, expected) in wrong {
            let error = names.find(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_filter_rejects_has_a_name_of_its_own() {
        let names = names("pcap x | tcp name=t | http | files dir=out; @t |! save rest.pcap");
        let tcp = names.givers().find(|giver| names.name(giver) == "t").unwrap();
        let frames = Types::of(&[filter::Type::Frame]);
        let rejects: Vec<_> = names.rejects(tcp).collect();
        let number = format!("{}.{}", tcp.number, tcp.to.iter().find(|(_, rejected)| *rejected).unwrap().0);
        assert_eq!(rejects, [("t.save".to_string(), number.clone(), frames)]);
        let (all, rest) = (names.find("tcp").unwrap(), names.find("tcp.save").unwrap());
        assert_eq!((all.types.to_string(), rest.types, &rest.name), ("bytes".into(), frames, &number));
        assert_eq!(names.find("t.save"), Ok(rest.clone()));
        assert!(rest.edges.iter().all(|edges| edges.edge.is_some()) && names.find("tcp.http").unwrap() != rest);
        assert!(names.givers().all(|giver| giver == tcp || names.rejects(giver).next().is_none()));
    }

    #[test]
    fn what_several_are_called_names_none_of_them() {
        let names = names("pcap x | { tcp | http | files dir=a + head 3 | tcp | http | files dir=b }");
        assert!(names.find("http").unwrap_err().contains("say which, by number"));
        let https: Vec<&Giver> = names.givers().filter(|giver| giver.names == ["http"]).collect();
        assert!(https.len() == 2 && https.iter().all(|giver| names.name(giver) == giver.number.to_string()));
    }
}
