// SPDX-License-Identifier: Apache-2.0
/* In the place of a service that starts `docker run -i --rm --network none ...` by ProcessBuilder: the command is another, and
 * nothing is left of naming, killing and removing containers, or of threads that drain pipes: cloche ends what takes too long,
 * and both streams together are shorter than a pipe is.
 *
 *     java DockerSandbox.java 'print(sum(range(10)))'
 */
import java.io.IOException;
import java.nio.charset.StandardCharsets;

public class DockerSandbox {
	record Result(int exitCode, String stdout, String stderr) {
		boolean timedOut() {
			return exitCode == 124; // may be the program's own, too: `cloche python --json` tells them apart
		}
	}

	static Result runPython(String code) throws IOException, InterruptedException {
		Process p = new ProcessBuilder("cloche", "python", "--timeout", "3s", "--memory", "128m", "--cpus", "0.5",
				"--pids-limit", "32", "--max-output", "1024", "-").start();
		try (var stdin = p.getOutputStream()) {
			stdin.write(code.getBytes(StandardCharsets.UTF_8));
		} catch (IOException e) {
			// who does not read all of it has said why
		}
		String out = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
		String err = new String(p.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
		return new Result(p.waitFor(), out, err);
	}

	public static void main(String[] args) throws Exception {
		Result r = runPython(args[0]);
		System.out.print("exit=" + r.exitCode() + (r.timedOut() ? " (timed out)" : "") + "\nstdout:\n" + r.stdout() + "\nstderr:\n" + r.stderr());
	}
}
