//! A report as one file of HTML, with nothing from outside.

use std::fmt::Write;

use crate::chart;
use crate::document::{Document, Section};

const STYLE: &str = "\
:root{--ink:#1a1a1a;--soft:#555;--line:#ccc;--paper:#fff;--band:#f4f6f8;--head:#e6ebf0}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--soft:#aaa;--line:#444;--paper:#16181b;\
--band:#1e2126;--head:#2a2f36}}\
@media print{:root{--ink:#000;--soft:#333;--line:#999;--paper:#fff;--band:#fff;--head:#eee}\
nav{display:none}section{break-inside:avoid-page}}\
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2em auto;\
max-width:1100px;padding:0 1em}h1{font-size:1.5em}h2{font-size:1.15em;margin:1.8em 0 .2em}\
p.reading{color:var(--soft);margin:.1em 0 .6em;max-width:80ch}div.wide{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15em .6em;\
border-bottom:1px solid var(--line);text-align:right;vertical-align:top}th{background:var(--head)}\
tbody tr:nth-child(even){background:var(--band)}td.l,th.l{text-align:left;max-width:46em;\
overflow-wrap:anywhere}p.note{border-left:4px solid #d55e00;padding-left:.7em}nav{columns:3 16em;\
margin:1em 0}nav a{display:block}a{color:#0072b2}svg{max-width:760px;width:100%;display:block;\
margin:.4em 0 .8em}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}";

pub fn html(document: &Document) -> String {
    let title = escaped(&document.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    out += "<div class=\"wide\"><table><tbody>";
    for (name, value) in &document.head {
        let (name, value) = (escaped(name), escaped(value));
        let _ = write!(
            out,
            "<tr><th class=\"l\">{name}</th><td class=\"l\">{value}</td></tr>"
        );
    }
    out += "</tbody></table></div>\n";
    for note in &document.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    out += "<nav>";
    for (at, s) in document.sections.iter().enumerate() {
        let _ = write!(out, "<a href=\"#s{at}\">{}</a>", escaped(&s.title));
    }
    out += "</nav>\n";
    for (at, s) in document.sections.iter().enumerate() {
        section(at, s, &mut out);
    }
    out + "</body></html>\n"
}

fn section(at: usize, s: &Section, out: &mut String) {
    let (title, reading) = (escaped(&s.title), escaped(&s.reading));
    let _ = write!(
        out,
        "<section id=\"s{at}\"><h2>{title}</h2><p class=\"reading\">{reading}</p>"
    );
    if let Some(chart) = &s.chart {
        out.push_str(&chart::svg(chart));
    }
    if s.rows.is_empty() {
        out.push_str("<p>Nothing in this span.</p></section>\n");
        return;
    }
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    let class = |column: &str| match Section::is_left(column) {
        true => " class=\"l\"",
        false => "",
    };
    for column in &s.columns {
        let _ = write!(
            out,
            "<th{}>{}</th>",
            class(column),
            escaped(Section::name(column))
        );
    }
    out.push_str("</tr></thead><tbody>");
    for row in &s.rows {
        out.push_str("<tr>");
        for (cell, column) in row.iter().zip(&s.columns) {
            let _ = write!(out, "<td{}>{}</td>", class(column), escaped(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>\n");
}

/// Text within HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Bar, Chart};

    /// A statement's text is what a client sent.
    #[test]
    fn texts_cannot_become_markup() {
        let mut s = Section::new("<b>", "a & b", &["<SQL", "Gets"]);
        s.row(["<script>alert('x')</script>".to_string(), "5".to_string()]);
        s.chart = Some(Chart::Bars(vec![Bar {
            label: "<i>".to_string(),
            value: 1.0,
            shown: "\"1\"".to_string(),
        }]));
        let document = Document {
            title: "t".to_string(),
            notes: vec!["<u>".to_string()],
            sections: vec![s],
            ..Document::default()
        };
        let page = html(&document);
        for tag in ["<b>", "<script>", "<i>", "<u>"] {
            assert!(!page.contains(tag), "{tag} in {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{page}");
        assert!(!page.contains("http"), "nothing from outside");
    }
}
