//! A small parser of OpenMetrics text. It panics at all that the format does not allow.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: the name, the labels and the value.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: String,
}

impl Sample {
    fn parse(line: &str) -> Sample {
        let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line:?}"));
        let (name, rest) = line.split_at(end);
        assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'), "{line:?}");
        let mut labels = BTreeMap::new();
        let rest = match rest.strip_prefix('{') {
            None => rest,
            Some(rest) => {
                let mut letters = rest.char_indices();
                loop {
                    let label: String =
                        letters.by_ref().map(|(_, letter)| letter).take_while(|one| *one != '=').collect();
                    assert_eq!(letters.next().map(|(_, letter)| letter), Some('"'), "{line:?}");
                    let mut value = String::new();
                    loop {
                        match letters.next().map(|(_, letter)| letter) {
                            Some('"') => break,
                            Some('\\') => value.push(match letters.next().map(|(_, letter)| letter) {
                                Some('n') => '\n',
                                Some(escaped @ ('\\' | '"')) => escaped,
                                other => panic!("an escaped {other:?}: {line:?}"),
                            }),
                            Some(letter) => value.push(letter),
                            None => panic!("a value without an end: {line:?}"),
                        }
                    }
                    assert!(labels.insert(label, value).is_none(), "a label twice: {line:?}");
                    match letters.next() {
                        Some((_, ',')) => {}
                        Some((end, '}')) => break &rest[end + 1..],
                        other => panic!("{other:?} after a label: {line:?}"),
                    }
                }
            }
        };
        let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no space before the value: {line:?}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("not a number: {line:?}"));
        Sample { name: name.to_string(), labels, value: value.to_string() }
    }
}

/// A family: its type and its samples.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// All families by name.
#[derive(Debug)]
pub struct Metrics(pub BTreeMap<String, Family>);

impl Metrics {
    #[track_caller]
    pub fn parse(text: &str) -> Metrics {
        let lines = text.strip_suffix("# EOF\n").expect("it ends with `# EOF`");
        let (mut families, mut name) = (BTreeMap::<String, Family>::new(), String::new());
        let mut series = BTreeSet::new();
        for line in lines.lines() {
            assert!(!line.is_empty() && line != "# EOF");
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (family, kind) = rest.split_once(' ').unwrap();
                name = family.to_string();
                let new = Family { kind: kind.to_string(), samples: Vec::new() };
                assert!(families.insert(name.clone(), new).is_none(), "{name} is there twice");
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (family, unit) = rest.split_once(' ').unwrap();
                assert!(family == name && family.ends_with(&format!("_{unit}")), "{line:?}");
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.starts_with(&format!("{name} ")), "{line:?}");
            } else {
                let sample = Sample::parse(line);
                let family = families.get_mut(&name).unwrap();
                let suffix = sample.name.strip_prefix(&name[..]).unwrap_or_else(|| panic!("{line:?} in {name}"));
                let allowed: &[&str] = match &family.kind[..] {
                    "gauge" => &[""],
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_count", "_sum"],
                    other => panic!("{name} is a {other}"),
                };
                assert!(allowed.contains(&suffix), "{line:?} in a {}", family.kind);
                assert!(series.insert((sample.name.clone(), sample.labels.clone())), "{line:?} is there twice");
                family.samples.push(sample);
            }
        }
        Metrics(families)
    }

    /// The value with these labels. There must be one.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<_, _> = labels.iter().map(|(label, value)| ((*label).into(), (*value).into())).collect();
        let mut samples = self.0.values().flat_map(|family| &family.samples);
        let sample = samples.find(|sample| sample.name == name && sample.labels == labels);
        sample.unwrap_or_else(|| panic!("there is no {name} with {labels:?}")).value.parse().unwrap()
    }

    /// All values that must not go down, by series.
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let counters = self.0.values().filter(|family| family.kind != "gauge").flat_map(|family| &family.samples);
        counters.map(|one| (format!("{} {:?}", one.name, one.labels), one.value.parse().unwrap())).collect()
    }
}
