/** Certificates for tests over TLS, made without any program. */
import { generateKeyPairSync, sign } from "node:crypto";

/** Encodes a value of DER: its tag, its length, and its content. */
function der(tag: number, ...parts: Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}

const sequence = (...parts: Uint8Array[]): Buffer => der(0x30, ...parts);
const identifier = (...bytes: number[]): Buffer => der(0x06, Buffer.from(bytes));
const time = (text: string): Buffer => der(0x18, Buffer.from(text));

const ECDSA_WITH_SHA256 = sequence(identifier(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
/** `CN=localhost`. */
const NAME = sequence(der(0x31, sequence(identifier(0x55, 4, 3), der(0x0c, Buffer.from("localhost")))));
/** The alternative names of the subject: `localhost` and 127.0.0.1. */
const NAMES = sequence(
  identifier(0x55, 0x1d, 0x11),
  der(0x04, sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.of(127, 0, 0, 1)))),
);

function pem(label: string, content: Buffer): string {
  const lines = content.toString("base64").match(/.{1,64}/g)!;
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}

/** Makes a key, and a certificate for localhost and 127.0.0.1 that it has signed itself. */
export function selfSigned(): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const content = sequence(
    der(0xa0, der(0x02, Buffer.of(2))),
    der(0x02, Buffer.of(1)),
    ECDSA_WITH_SHA256,
    NAME,
    sequence(time("20000101000000Z"), time("20991231235959Z")),
    NAME,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(NAMES)),
  );
  const signature = der(0x03, Buffer.of(0), sign("sha256", content, privateKey));
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: pem("CERTIFICATE", sequence(content, ECDSA_WITH_SHA256, signature)),
  };
}
