/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - how a prepared Python is started: for the one who executes it, inside its own sandbox.
 *
 *	python3 -	with descriptor 0: a pipe that holds ZYGOTE_BOOTSTRAP and has ended,
 *			1 and 2: pipes, 3: the request socket, 4: the module, open for reading.
 *
 * It is started exactly as the command it stands for, so that everything python3 derives from its
 * command line is right in the children. The streams are pipes because the children's are: the
 * interpreter decides at its start how it buffers them. /proc must be there (the module, the number of
 * threads); environment and umask are those that runs will have.
 */
#ifndef ZYGOTE_LAUNCH_H
#define ZYGOTE_LAUNCH_H

/*
 * The interpreter deletes __file__ of <stdin> when the program is over; the module, held by nothing
 * else, is freed by that, and its free function (module.c) is where everything begins: inside main(),
 * with not one Python frame below, no name of ours in __main__, and no row in sys.modules.
 */
#define ZYGOTE_BOOTSTRAP                                                                           \
	"__file__ = __import__('_imp').create_dynamic(__import__('_frozen_importlib').ModuleSpec(" \
	"'cloche_zygote', None, origin='/proc/self/fd/4'))\n"

#endif
