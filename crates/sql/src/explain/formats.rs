//! JSON, YAML and XML, laid out as PostgreSQL lays them out.

use super::options::Format;
use super::step::{Group, Value};
use crate::pgtype::json::write_string;

const XML_BEGIN: &str = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n";
const XML_END: &str = "</explain>";

/// What is said of something without a plan.
pub(super) fn bare(format: Format, name: &str) -> String {
    match format {
        Format::Text => name.to_string(),
        Format::Json => format!("[\n  {}\n]", quoted(name)),
        Format::Yaml => format!("- {}", quoted(name)),
        Format::Xml => format!("{XML_BEGIN}  <{} />\n{XML_END}", xml_name(name)),
    }
}

/// The description of one statement as JSON.
pub(super) fn json(query: &Group) -> String {
    let mut out = "[\n  ".to_string();
    json_group(&mut out, query, 1);
    out + "\n]"
}

fn json_group(out: &mut String, group: &Group, indent: usize) {
    out.push('{');
    for (at, (key, value)) in group.iter().enumerate() {
        out.push_str(if at > 0 { ",\n" } else { "\n" });
        out.push_str(&format!("{}{}: ", "  ".repeat(indent + 1), quoted(key)));
        match value {
            Value::Text(text) => out.push_str(&quoted(text)),
            Value::Number(number) => out.push_str(number),
            Value::Bool(is) => out.push_str(&is.to_string()),
            Value::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|t| quoted(t)).collect();
                out.push_str(&format!("[{}]", texts.join(", ")));
            }
            Value::Group(group) => json_group(out, group, indent + 1),
            Value::Plans(plans) => {
                out.push('[');
                for (at, plan) in plans.iter().enumerate() {
                    out.push_str(if at > 0 { ",\n" } else { "\n" });
                    out.push_str(&"  ".repeat(indent + 2));
                    json_group(out, plan, indent + 2);
                }
                out.push_str(&format!("\n{}]", "  ".repeat(indent + 1)));
            }
        }
    }
    out.push_str(&format!("\n{}}}", "  ".repeat(indent)));
}

/// The description of one statement as YAML.
pub(super) fn yaml(query: &Group) -> String {
    let mut out = "- ".to_string();
    yaml_group(&mut out, query, 1, true);
    out
}

/// `begun`: the first key stands on the line that is there already.
fn yaml_group(out: &mut String, group: &Group, indent: usize, mut begun: bool) {
    for (key, value) in group {
        if !std::mem::take(&mut begun) {
            out.push_str(&format!("\n{}", "  ".repeat(indent)));
        }
        out.push_str(&format!("{key}: "));
        match value {
            Value::Text(text) => out.push_str(&quoted(text)),
            Value::Number(number) => out.push_str(number),
            Value::Bool(is) => out.push_str(&is.to_string()),
            Value::Texts(texts) => {
                for text in texts {
                    out.push_str(&format!("\n{}- {}", "  ".repeat(indent + 1), quoted(text)));
                }
            }
            Value::Group(group) => yaml_group(out, group, indent + 1, false),
            Value::Plans(plans) => {
                for plan in plans {
                    out.push_str(&format!("\n{}- ", "  ".repeat(indent + 1)));
                    yaml_group(out, plan, indent + 2, true);
                }
            }
        }
    }
}

/// The description of one statement as XML.
pub(super) fn xml(query: &Group) -> String {
    let mut out = XML_BEGIN.to_string();
    xml_group(&mut out, "Query", query, 1);
    out + XML_END
}

fn xml_group(out: &mut String, name: &str, group: &Group, indent: usize) {
    element(out, name, indent, |out| {
        for (key, value) in group {
            match value {
                Value::Text(text) => xml_leaf(out, key, text, indent + 1),
                Value::Number(number) => xml_leaf(out, key, number, indent + 1),
                Value::Bool(is) => xml_leaf(out, key, &is.to_string(), indent + 1),
                Value::Texts(texts) => element(out, key, indent + 1, |out| {
                    for text in texts {
                        xml_leaf(out, "Item", text, indent + 2);
                    }
                }),
                Value::Group(group) => xml_group(out, key, group, indent + 1),
                Value::Plans(plans) => element(out, key, indent + 1, |out| {
                    for plan in plans {
                        xml_group(out, "Plan", plan, indent + 2);
                    }
                }),
            }
        }
    });
}

fn element(out: &mut String, name: &str, indent: usize, inner: impl FnOnce(&mut String)) {
    let (name, margin) = (xml_name(name), "  ".repeat(indent));
    out.push_str(&format!("{margin}<{name}>\n"));
    inner(out);
    out.push_str(&format!("{margin}</{name}>\n"));
}

fn xml_leaf(out: &mut String, name: &str, text: &str, indent: usize) {
    let (name, margin) = (xml_name(name), "  ".repeat(indent));
    out.push_str(&format!("{margin}<{name}>{}</{name}>\n", xml_text(text)));
}

/// A key as the name of an element.
fn xml_name(key: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    key.chars()
        .map(|c| if is_kept(c) { c } else { '-' })
        .collect()
}

fn xml_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#x0d;"),
            c => out.push(c),
        }
    }
    out
}

/// A string of JSON, and of YAML.
fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> Group {
        let scan: Group = vec![
            ("Node Type", "Seq Scan".into()),
            ("Output", Value::Texts(vec!["a.i".into(), "a.s".into()])),
            ("Filter", "(a.s <> 'a\"<b')".into()),
        ];
        let join: Group = vec![
            ("Node Type", "Hash Join".into()),
            ("Inner Unique", true.into()),
            ("Plans", Value::Plans(vec![scan.clone(), scan])),
        ];
        vec![
            ("Plan", Value::Group(join)),
            ("Planning Time", Value::Number("0.030".into())),
        ]
    }

    #[test]
    fn json_is_laid_out_as_postgresql_does() {
        let shown = json(&query());
        let begin = r#"[
  {
    "Plan": {
      "Node Type": "Hash Join",
      "Inner Unique": true,
      "Plans": [
        {
          "Node Type": "Seq Scan",
          "Output": ["a.i", "a.s"],
          "Filter": "(a.s <> 'a\"<b')"
        },
        {
"#;
        assert!(shown.starts_with(begin), "{shown}");
        let end = r#"
        }
      ]
    },
    "Planning Time": 0.030
  }
]"#;
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn yaml_is_laid_out_as_postgresql_does() {
        let scan = r#"
      - Node Type: "Seq Scan"
        Output: 
          - "a.i"
          - "a.s"
        Filter: "(a.s <> 'a\"<b')""#;
        let wanted = format!(
            "- Plan: \n    Node Type: \"Hash Join\"\n    Inner Unique: true\n    Plans: \
             {scan}{scan}\n  Planning Time: 0.030"
        );
        assert_eq!(yaml(&query()), wanted);
    }

    #[test]
    fn xml_is_laid_out_as_postgresql_does() {
        let scan = "        <Plan>
          <Node-Type>Seq Scan</Node-Type>
          <Output>
            <Item>a.i</Item>
            <Item>a.s</Item>
          </Output>
          <Filter>(a.s &lt;&gt; 'a\"&lt;b')</Filter>
        </Plan>
";
        let wanted = format!(
            "<explain xmlns=\"http://www.postgresql.org/2009/explain\">
  <Query>
    <Plan>
      <Node-Type>Hash Join</Node-Type>
      <Inner-Unique>true</Inner-Unique>
      <Plans>
{scan}{scan}      </Plans>
    </Plan>
    <Planning-Time>0.030</Planning-Time>
  </Query>
</explain>"
        );
        assert_eq!(xml(&query()), wanted);
    }
}
