/** Certificates for tests over TLS. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Creates a certificate for 127.0.0.1 with the `openssl` program. */
export function selfSigned(): { key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), "reciproc-tls-"));
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const options = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost".split(" ");
  try {
    const names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"];
    execFileSync("openssl", ["req", "-x509", ...options, ...names, "-keyout", key, "-out", cert], { stdio: "pipe" });
    return { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
  } catch (cause) {
    throw new Error("this test needs the `openssl` program: install it with your system's packages", { cause });
  } finally {
    rmSync(folder, { recursive: true });
  }
}
