/**
 * Shows the texts of a language server. Their Markdown is parsed into tokens, and each token becomes an element. Text from outside
 * is never parsed as HTML.
 */
import MarkdownIt, { type Token } from "markdown-it";
import type { Hover } from "../../lsp.js";

type Content = Hover["contents"];

const parser = new MarkdownIt("commonmark", { html: false });
// The code below checks the parsed address of each link.
parser.validateLink = () => true;

const TAGS = new Set(["p", "strong", "em", "ul", "ol", "li", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6"]);

/** Returns the elements of a text; `undefined` if the text is empty. */
export function rendered(content: Content): HTMLElement | undefined {
  const box = document.createElement("div");
  box.className = "documentation";
  for (const part of [content].flat()) appendPart(part, box);
  return box.textContent?.trim() === "" ? undefined : box;
}

/** Returns the Markdown of a text. The protocol has four forms, and lists of them. A bare string is Markdown. */
function appendPart(part: Exclude<Content, readonly unknown[]>, box: HTMLElement): void {
  if (typeof part === "string") append(parser.parse(part, {}), box);
  else if ("language" in part) box.append(withText("pre", part.value));
  else if (part.kind === "markdown") append(parser.parse(part.value, {}), box);
  else box.append(withText("p", part.value));
}

function append(tokens: readonly Token[], into: HTMLElement): void {
  const open = [into];
  for (const token of tokens) {
    const parent = open.at(-1)!;
    if (token.nesting === -1) open.pop();
    else if (token.nesting === 0) appendLeaf(token, parent);
    // The paragraphs of a tight list are hidden: their content goes into the list item.
    else if (token.hidden) open.push(parent);
    else {
      const element = elementFor(token);
      parent.append(element);
      open.push(element);
    }
  }
}

function elementFor(token: Token): HTMLElement {
  const address = token.type === "link_open" ? urlOf(token, "href") : undefined;
  if (address?.protocol === "https:") {
    const link = document.createElement("a");
    Object.assign(link, { href: address.href, target: "_blank", rel: "noopener noreferrer" });
    return link;
  }
  return document.createElement(TAGS.has(token.tag) ? token.tag : "span");
}

function appendLeaf(token: Token, parent: HTMLElement): void {
  const { type, children, content } = token;
  if (type === "inline") append(children ?? [], parent);
  else if (type === "code_inline") parent.append(withText("code", content));
  else if (type === "fence" || type === "code_block") parent.append(withText("pre", content.trimEnd()));
  else if (type === "hardbreak" || type === "hr") parent.append(document.createElement(type === "hr" ? "hr" : "br"));
  else if (type === "softbreak") parent.append("\n");
  else if (type === "image") appendImage(token, parent);
  else parent.append(content);
}

/** Accepts only images inside the text, because any other server would learn the reader's address. An SVG runs no script as an image. */
function appendImage(token: Token, parent: HTMLElement): void {
  const address = urlOf(token, "src");
  if (!address?.href.startsWith("data:image/")) return parent.append(token.content);
  const image = document.createElement("img");
  Object.assign(image, { src: address.href, alt: token.content });
  parent.append(image);
}

function urlOf(token: Token, attribute: string): URL | undefined {
  const value = String(token.attrGet(attribute) ?? "");
  return URL.canParse(value) ? new URL(value) : undefined;
}

function withText(tag: "code" | "p" | "pre", text: string): HTMLElement {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
